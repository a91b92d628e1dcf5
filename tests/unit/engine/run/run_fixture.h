// A run over rows that a test writes down itself.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "gtest/gtest.h"
#include "tests/support/model_fixture.h"
#include "worker/engine/checkpoint/random_weights.h"
#include "worker/engine/run.h"

namespace octavo::engine {

// Training rows in the order given, again and again; no held-out rows unless given.
class FixedCorpus final : public Corpus {
 public:
  using Rows = std::vector<std::vector<octavo::testing_support::Document>>;

  using Taken = std::vector<std::pair<int64_t, int64_t>>;

  explicit FixedCorpus(Rows rows, Rows holdout = {}, Taken* taken = nullptr)
      : taken_(taken), rows_(std::move(rows)), holdout_(std::move(holdout)) {
    report_.train_rows = static_cast<int64_t>(rows_.size());
    report_.holdout_rows = static_cast<int64_t>(holdout_.size());
  }
  const CorpusReport& report() const override { return report_; }
  std::string sha256() const override { return "fixed"; }
  Batch TrainBatch(uint64_t, int64_t first_sample, int64_t rows) const override {
    if (taken_ != nullptr) taken_->push_back({first_sample, rows});
    Rows chosen;
    for (int64_t i = first_sample; i < first_sample + rows; ++i) {
      chosen.push_back(rows_[static_cast<size_t>(i) % rows_.size()]);
    }
    return octavo::testing_support::Pack(chosen);
  }
  Batch HoldoutBatch(int64_t first_row, int64_t rows) const override {
    const auto first = holdout_.begin() + first_row;
    return octavo::testing_support::Pack(
        Rows(first, first + std::min<int64_t>(rows, holdout_.end() - first)));
  }

 private:
  Taken* const taken_;  // first sample and rows of each call
  Rows rows_;
  Rows holdout_;
  CorpusReport report_;
};

inline ModelConfig TinyModel() {
  ModelConfig config;
  config.model_type = "llama";
  config.shape = {.vocabulary = 48,
                  .hidden = 32,
                  .intermediate = 64,
                  .layers = 2,
                  .heads = 4,
                  .kv_heads = 2,
                  .head_dim = 8,
                  .tied = true};
  config.max_positions = 512;
  config.initializer_range = 0.08;
  return config;
}

inline RunSpec TinyPlan(int64_t sequence) {
  RunSpec spec;
  spec.data.sequence_length = sequence;
  spec.optimizer.learning_rate = 1e-2;
  spec.optimizer.min_learning_rate = 1e-3;
  spec.optimizer.weight_decay = 0;
  spec.schedule.kind = ScheduleSpec::Kind::kConstant;
  spec.steps = 1000;
  spec.seed = 5;
  spec.probe_every_steps = 0;
  return spec;
}

// The backend outlives the run.
struct TestRun {
  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<Run> run;

  StepReport Step() {
    absl::StatusOr<StepReport> report = run->Step();
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? *report : StepReport{};
  }
  std::string WeightsSha256() {
    absl::StatusOr<FinalReport> report = run->Finish();
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? report->weights_sha256 : "";
  }
};

// Changes the initial master weights of a parameter, given by name.
using ChangeWeights = std::function<void(const std::string& name, std::vector<float>* values)>;

inline void Change(const Parameters& parameters, kernels::Backend* backend,
                   const ChangeWeights& change) {
  for (const ParameterSpec& spec : parameters.layout().parameters) {
    std::vector<float> values(static_cast<size_t>(spec.count()));
    const int64_t bytes = spec.count() * static_cast<int64_t>(sizeof(float));
    float* const master = parameters.master() + spec.offset;
    CHECK(backend->CopyOut(values.data(), master, bytes).ok());
    change(spec.name, &values);
    CHECK(backend->CopyIn(master, values.data(), bytes).ok());
  }
}

struct RunChanges {
  FixedCorpus::Rows holdout;
  FixedCorpus::Taken* taken = nullptr;
  ChangeWeights weights;
  // Puts something around the backend, such as a counter.
  std::function<std::unique_ptr<kernels::Backend>(std::unique_ptr<kernels::Backend>)> wrap;
};

inline TestRun MakeRun(const RunSpec& spec, FixedCorpus::Rows rows, RunChanges changes = {}) {
  TestRun result;
  result.backend = *kernels::OpenBackend("cpu", {.memory_bytes = 0, .threads = 1});
  if (changes.wrap) result.backend = changes.wrap(std::move(result.backend));
  RunParts parts;
  parts.spec = spec;
  parts.config = TinyModel();
  parts.backend = result.backend.get();
  parts.tokenizer = MakeByteTokenizer();
  parts.corpus =
      std::make_unique<FixedCorpus>(std::move(rows), std::move(changes.holdout), changes.taken);
  parts.parameters = *Parameters::Create(LayOutParameters(parts.config.shape), parts.backend);
  parts.transformer =
      *Transformer::Create({.config = parts.config,
                            .recipe = spec.recipe,
                            .max_tokens = spec.micro_batch * spec.data.sequence_length},
                           parts.parameters->layout(), parts.backend);
  parts.optimizer.emplace(spec.optimizer, parts.backend);
  CHECK(
      InitialiseWeights(*parts.parameters, spec.seed, parts.config.initializer_range, parts.backend)
          .ok());
  if (changes.weights) Change(*parts.parameters, parts.backend, changes.weights);
  CHECK(parts.transformer->UpdateWeights(*parts.parameters, 1).ok());
  result.run = std::make_unique<Run>(std::move(parts));
  return result;
}

}  // namespace octavo::engine
