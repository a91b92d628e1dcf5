// A small random model on a small text, as a spec whose files lie in a temporary folder.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/backend.h"
#include "tests/support/temporary_folder.h"
#include "worker/engine/engine.h"

namespace octavo::testing_support {

// Llama with grouped heads, untied; bytes are its tokens.
inline constexpr char kTinyConfig[] = R"({
  "architectures": ["LlamaForCausalLM"],
  "model_type": "llama",
  "vocab_size": 260,
  "hidden_size": 64,
  "intermediate_size": 96,
  "num_hidden_layers": 2,
  "num_attention_heads": 4,
  "num_key_value_heads": 2,
  "hidden_act": "silu",
  "rms_norm_eps": 1e-5,
  "rope_theta": 10000.0,
  "max_position_embeddings": 128,
  "initializer_range": 0.05,
  "tie_word_embeddings": false,
  "bos_token_id": 256,
  "eos_token_id": 256,
  "torch_dtype": "float32",
  "unknown_to_us": {"kept": [1, 2.5, "x"]}
})";

// Documents of different lengths that a small model can learn.
inline std::string TinyText(int documents) {
  std::string text;
  for (int i = 0; i < documents; ++i) {
    absl::StrAppend(&text, i, " plus ", i * 7 % 13, " gives ", i + i * 7 % 13,
                    i % 3 == 0 ? ", as everybody knows\n" : "\n");
  }
  return text;
}

struct TinyRun {
  TinyRun() : backend(*kernels::OpenBackend("cpu", {.threads = 1})) {
    folder.Write("model/config.json", kTinyConfig);
    spec.model = {.folder = folder.At("model"),
                  .initialisation = engine::ModelSpec::Initialisation::kRandom};
    spec.data.files = {folder.Write("train.txt", TinyText(200))};
    spec.data.document_separator = "\n";
    spec.data.tokenizer = engine::DataSpec::TokenizerKind::kByte;
    spec.data.sequence_length = 48;
    spec.data.holdout_fraction = 0.1;
    spec.optimizer.learning_rate = 3e-3;
    spec.optimizer.min_learning_rate = 3e-4;
    spec.schedule = {.kind = engine::ScheduleSpec::Kind::kWsd, .warmup_steps = 2, .decay_steps = 2};
    spec.evaluation.holdout_tokens = 200;
    spec.micro_batch = 2;
    spec.gradient_accumulation = 2;
    spec.steps = 8;
    spec.seed = 17;
    spec.probe_every_steps = 4;
  }

  absl::StatusOr<std::unique_ptr<engine::Engine>> Prepare(const std::string& resume = "") {
    return engine::Engine::Prepare(spec, resume, backend.get());
  }

  TemporaryFolder folder;
  std::unique_ptr<kernels::Backend> backend;
  engine::RunSpec spec;
};

// Steps until the run is done or has made `steps`; every step must succeed.
inline std::vector<engine::StepReport> RunSteps(engine::Engine* engine, int64_t steps) {
  std::vector<engine::StepReport> reports;
  while (!engine->done() && static_cast<int64_t>(reports.size()) < steps) {
    absl::StatusOr<engine::StepReport> report = engine->Step();
    EXPECT_TRUE(report.ok()) << report.status();
    if (!report.ok()) break;
    reports.push_back(*report);
  }
  return reports;
}

}  // namespace octavo::testing_support
