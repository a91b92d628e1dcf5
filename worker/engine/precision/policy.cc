#include "worker/engine/precision/policy.h"

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "worker/engine/model/module_pattern.h"

namespace octavo::engine {
namespace {

constexpr char kPatternHelp[] =
    "matches no linear layer; write a glob such as \"model.layers.0.*\" or \"*.down_proj\" "
    "(embedding, norms and head are never FP8)";

bool MatchesAny(const std::vector<std::string>& patterns, const std::string& module) {
  return patterns.empty() || std::any_of(patterns.begin(), patterns.end(), [&](const auto& one) {
           return MatchesModule(one, module);
         });
}

// `field` names the list of patterns.
absl::Status CheckPatterns(const std::string& field, const std::vector<std::string>& patterns,
                           const ParameterLayout& layout) {
  for (const std::string& pattern : patterns) {
    const bool used = std::any_of(layout.parameters.begin(), layout.parameters.end(),
                                  [&](const ParameterSpec& parameter) {
                                    return parameter.kind == ParameterKind::kLinear &&
                                           MatchesModule(pattern, parameter.module);
                                  });
    if (!used)
      return absl::InvalidArgumentError(absl::StrCat(field, " \"", pattern, "\" ", kPatternHelp));
  }
  return absl::OkStatus();
}

// keep_bf16 is a first rule.
std::vector<PrecisionRule> AllRules(const RecipeSpec& recipe) {
  std::vector<PrecisionRule> rules;
  if (!recipe.keep_bf16.empty())
    rules.push_back({.modules = recipe.keep_bf16,
                     .fprop = GemmPrecision::kBf16,
                     .dgrad = GemmPrecision::kBf16,
                     .wgrad = GemmPrecision::kBf16});
  rules.insert(rules.end(), recipe.rules.begin(), recipe.rules.end());
  return rules;
}

LinearPolicy PolicyOf(const std::vector<PrecisionRule>& rules, const std::string& module,
                      int64_t step) {
  LinearPolicy policy = kFp8Policy;
  for (const PrecisionRule& rule : rules) {
    const bool ended = rule.until_step > 0 && step > rule.until_step;
    if (step < rule.from_step || ended || !MatchesAny(rule.modules, module)) continue;
    policy.fprop = rule.fprop.value_or(policy.fprop);
    policy.dgrad = rule.dgrad.value_or(policy.dgrad);
    policy.wgrad = rule.wgrad.value_or(policy.wgrad);
    policy.gradient = rule.gradient.value_or(policy.gradient);
  }
  return policy;
}

}  // namespace

absl::StatusOr<PrecisionPolicy> PrecisionPolicy::Create(const RecipeSpec& recipe,
                                                        const ParameterLayout& layout) {
  const bool fp8 = recipe.precision == RecipeSpec::Precision::kFp8;
  if (!fp8 && !recipe.keep_bf16.empty())
    return absl::InvalidArgumentError(
        absl::StrCat("keep_bf16 \"", recipe.keep_bf16[0],
                     "\" has no meaning in recipe \"bf16\"; remove it or choose \"fp8\""));
  if (!fp8 && !recipe.rules.empty())
    return absl::InvalidArgumentError(
        "rules have no meaning in recipe \"bf16\"; remove them or choose \"fp8\"");
  if (absl::Status status = CheckPatterns("keep_bf16", recipe.keep_bf16, layout); !status.ok())
    return status;
  std::set<int64_t> changes = {1};
  for (size_t i = 0; i < recipe.rules.size(); ++i) {
    const PrecisionRule& rule = recipe.rules[i];
    absl::Status status =
        CheckPatterns(absl::StrCat("rules[", i, "].modules"), rule.modules, layout);
    if (!status.ok()) return status;
    changes.insert(rule.from_step);
    if (rule.until_step > 0) changes.insert(rule.until_step + 1);
  }

  PrecisionPolicy policy;
  const std::vector<PrecisionRule> rules = AllRules(recipe);
  for (const int64_t step : changes) {
    std::vector<LinearPolicy> table;
    for (const ParameterSpec& parameter : layout.parameters) {
      const auto module = static_cast<size_t>(parameter.module_index);
      table.resize(std::max(table.size(), module + 1));
      policy.forms_.resize(std::max(policy.forms_.size(), module + 1));
      if (parameter.kind != ParameterKind::kLinear) continue;
      if (fp8) table[module] = PolicyOf(rules, parameter.module, step);
      policy.forms_[module].Include(table[module]);
      if (step == 1) policy.linear_modules_.push_back(parameter.module_index);
    }
    policy.phases_.push_back({.first_step = step, .table = PolicyTable(std::move(table))});
  }
  return policy;
}

const PolicyTable& PrecisionPolicy::At(int64_t step) const {
  auto phase = std::upper_bound(
      phases_.begin(), phases_.end(), step,
      [](int64_t wanted, const Phase& candidate) { return wanted < candidate.first_step; });
  return phase == phases_.begin() ? phase->table : (phase - 1)->table;
}

std::vector<LinearForms> PrecisionPolicy::linear_forms() const {
  std::vector<LinearForms> linears;
  for (const int64_t module : linear_modules_) linears.push_back(forms(module));
  return linears;
}

bool PrecisionPolicy::any_fp8() const {
  return std::any_of(forms_.begin(), forms_.end(), [](const LinearForms& forms) {
    return forms.fp8_weight || forms.fp8_transposed_weight || forms.fp8_input;
  });
}

}  // namespace octavo::engine
