// A job's recipe as the engine takes it; also the coordinator's, whose memory estimate follows it.
#pragma once

#include <optional>
#include <string>

#include "octavo/v1/spec.pb.h"
#include "worker/engine/run_spec.h"

namespace octavo::trainer {

// Of a checked spec, whose steps are counted from 1.
inline engine::RecipeSpec MakeRecipeSpec(const v1::Recipe& recipe) {
  const auto precision = [](const std::string& name) -> std::optional<engine::GemmPrecision> {
    if (name.empty()) return std::nullopt;
    return name == "bf16" ? engine::GemmPrecision::kBf16 : engine::GemmPrecision::kFp8;
  };
  engine::RecipeSpec spec;
  spec.precision = recipe.name() == "bf16" ? engine::RecipeSpec::Precision::kBf16
                                           : engine::RecipeSpec::Precision::kFp8;
  spec.keep_bf16 = {recipe.keep_bf16().begin(), recipe.keep_bf16().end()};
  for (const v1::PrecisionRule& from : recipe.rules()) {
    engine::PrecisionRule rule;
    rule.modules = {from.modules().begin(), from.modules().end()};
    rule.fprop = precision(from.fprop());
    rule.dgrad = precision(from.dgrad());
    rule.wgrad = precision(from.wgrad());
    if (!from.gradient().empty()) {
      rule.gradient = from.gradient() == "e5m2" ? kernels::Element::kE5M2 : kernels::Element::kE4M3;
    }
    rule.from_step = from.from_step();
    rule.until_step = from.until_step();
    spec.rules.push_back(rule);
  }
  return spec;
}

}  // namespace octavo::trainer
