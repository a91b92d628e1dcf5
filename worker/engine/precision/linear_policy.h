// In which precision the three GEMMs of each linear layer run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/numerics/element.h"

namespace octavo::engine {

enum class GemmPrecision { kBf16, kFp8 };

struct LinearPolicy {
  GemmPrecision fprop = GemmPrecision::kBf16;
  GemmPrecision dgrad = GemmPrecision::kBf16;
  GemmPrecision wgrad = GemmPrecision::kBf16;
  // Of the output gradient where DGrad or WGrad is FP8. Inputs and weights are always E4M3.
  kernels::Element gradient = kernels::Element::kE4M3;

  bool operator==(const LinearPolicy&) const = default;
};

inline constexpr LinearPolicy kFp8Policy = {
    .fprop = GemmPrecision::kFp8, .dgrad = GemmPrecision::kFp8, .wgrad = GemmPrecision::kFp8};

// The policy of every module at one step, or in one evaluation.
class PolicyTable {
 public:
  PolicyTable() = default;  // every GEMM in BF16
  // By ParameterSpec::module_index; modules beyond it are BF16.
  explicit PolicyTable(std::vector<LinearPolicy> policies) : policies_(std::move(policies)) {}

  LinearPolicy At(int64_t module) const {
    return module < static_cast<int64_t>(policies_.size()) ? policies_[static_cast<size_t>(module)]
                                                           : LinearPolicy();
  }
  bool any_fp8_forward() const {
    return std::any_of(policies_.begin(), policies_.end(), [](const LinearPolicy& policy) {
      return policy.fprop == GemmPrecision::kFp8;
    });
  }

 private:
  std::vector<LinearPolicy> policies_;
};

// The forms of a linear layer's weight and input that its policy needs at some step of a run.
struct LinearForms {
  bool bf16_weight = false;            // FProp or DGrad in BF16
  bool fp8_weight = false;             // FProp in FP8
  bool fp8_transposed_weight = false;  // DGrad in FP8
  bool bf16_input = false;             // WGrad in BF16
  bool fp8_input = false;              // WGrad in FP8

  void Include(const LinearPolicy& policy) {
    const auto is_fp8 = [](GemmPrecision precision) { return precision == GemmPrecision::kFp8; };
    bf16_weight = bf16_weight || !is_fp8(policy.fprop) || !is_fp8(policy.dgrad);
    fp8_weight = fp8_weight || is_fp8(policy.fprop);
    fp8_transposed_weight = fp8_transposed_weight || is_fp8(policy.dgrad);
    bf16_input = bf16_input || !is_fp8(policy.wgrad);
    fp8_input = fp8_input || is_fp8(policy.wgrad);
  }
  bool operator==(const LinearForms&) const = default;
};

}  // namespace octavo::engine
