// Updates from gradients that a test has written: each is a step of one target token.
#pragma once

#include <utility>

#include "base/status.h"
#include "worker/engine/optimizer/optimizer.h"

namespace octavo::testing_support {

class OptimizerSteps {
 public:
  OptimizerSteps(const engine::OptimizerSpec& spec, const engine::ParameterLayout& layout,
                 kernels::Backend* backend)
      : backend_(backend),
        optimizer_(spec, backend),
        record_(Take(engine::StepRecord::Create(layout, backend))) {}

  engine::StepRecord& record() { return record_; }

  // The state behind one step.
  kernels::StepState Step(const engine::Parameters& parameters, double learning_rate) {
    constexpr kernels::LossTotal kLoss = {.sum = 1, .tokens = 1};
    CHECK(record_.Begin(learning_rate).ok());
    CHECK(backend_->CopyIn(&record_.state()->loss, &kLoss, sizeof(kLoss)).ok());
    CHECK(optimizer_.Update(parameters, record_).ok());
    return Take(record_.Read()).state;
  }

 private:
  template <typename T>
  static T Take(absl::StatusOr<T> value) {
    CHECK(value.ok());
    return *std::move(value);
  }

  kernels::Backend* backend_;
  engine::Optimizer optimizer_;
  engine::StepRecord record_;
};

}  // namespace octavo::testing_support
