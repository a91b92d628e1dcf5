// Which linear layers run in FP8: all of them under the "fp8" recipe, except those that a pattern
// keeps in BF16.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/engine/model/shape.h"
#include "worker/engine/plan.h"

namespace octavo::engine {

class PrecisionPolicy {
 public:
  // INVALID_ARGUMENT: a pattern that matches no linear layer; patterns with a recipe that is BF16
  // anyway.
  static absl::StatusOr<PrecisionPolicy> Create(const RecipePlan& recipe,
                                                const ParameterLayout& layout);

  bool IsFp8(const std::string& module) const { return fp8_modules_.count(module) > 0; }
  bool any_fp8() const { return !fp8_modules_.empty(); }
  // Of linear weights that a pattern keeps in BF16; RunShape::bf16_linear_parameters.
  int64_t kept_parameters() const { return kept_parameters_; }

 private:
  PrecisionPolicy() = default;
  std::set<std::string> fp8_modules_;
  int64_t kept_parameters_ = 0;
};

}  // namespace octavo::engine
