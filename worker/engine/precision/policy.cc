#include "worker/engine/precision/policy.h"

#include "absl/strings/str_cat.h"
#include "worker/engine/model/module_pattern.h"

namespace octavo::engine {

absl::StatusOr<PrecisionPolicy> PrecisionPolicy::Create(const RecipePlan& recipe,
                                                        const ParameterLayout& layout) {
  PrecisionPolicy policy;
  if (recipe.precision == RecipePlan::Precision::kBf16) {
    if (recipe.keep_bf16.empty()) return policy;
    return absl::InvalidArgumentError(
        absl::StrCat("keep_bf16 \"", recipe.keep_bf16[0],
                     "\" has no meaning in recipe \"bf16\"; remove it or choose \"fp8\""));
  }
  std::vector<bool> used(recipe.keep_bf16.size(), false);
  for (const ParameterSpec& parameter : layout.parameters) {
    if (parameter.kind != ParameterKind::kLinear) continue;
    bool kept = false;
    for (size_t i = 0; i < used.size(); ++i) {
      if (!MatchesModule(recipe.keep_bf16[i], parameter.module)) continue;
      used[i] = true;
      kept = true;
    }
    if (kept) {
      policy.kept_parameters_ += parameter.count();
    } else {
      policy.fp8_modules_.insert(parameter.module);
    }
  }
  for (size_t i = 0; i < used.size(); ++i) {
    if (used[i]) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("keep_bf16 \"", recipe.keep_bf16[i],
                     "\" matches no linear layer; write a glob such as \"model.layers.0.*\" or "
                     "\"*.down_proj\" (embedding, norms and head are never FP8)"));
  }
  return policy;
}

}  // namespace octavo::engine
