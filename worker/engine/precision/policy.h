// Which GEMMs of which linear layers run in FP8, as a function of the step: all three of every
// linear layer under the "fp8" recipe, except where keep_bf16 or a rule says otherwise.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/engine/model/shape.h"
#include "worker/engine/precision/linear_policy.h"
#include "worker/engine/run_spec.h"

namespace octavo::engine {

class PrecisionPolicy {
 public:
  // INVALID_ARGUMENT: a pattern that matches no linear layer; patterns or rules with a recipe that
  // is BF16 anyway.
  static absl::StatusOr<PrecisionPolicy> Create(const RecipeSpec& recipe,
                                                const ParameterLayout& layout);

  // Of a step, counted from 1.
  const PolicyTable& At(int64_t step) const;
  // Over all steps, by ParameterSpec::module_index.
  const LinearForms& forms(int64_t module) const { return forms_[static_cast<size_t>(module)]; }
  // The same of the linear layers alone, in the layout's order.
  std::vector<LinearForms> linear_forms() const;
  // Whether anything of any linear layer is FP8 at some step.
  bool any_fp8() const;

 private:
  PrecisionPolicy() = default;

  // Steps between which nothing changes.
  struct Phase {
    int64_t first_step;
    PolicyTable table;
  };
  std::vector<Phase> phases_;  // by first_step, which is 1 in the first
  std::vector<LinearForms> forms_;
  std::vector<int64_t> linear_modules_;
};

}  // namespace octavo::engine
