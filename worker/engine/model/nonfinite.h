// Values that are not finite, counted where they arise: per module and kind, in the backend's
// memory. Quantisation turns an Inf into a number, so what it meets would show nowhere else.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "worker/engine/model/shape.h"

namespace octavo::engine {

enum class NonfiniteKind {
  kActivation,      // inputs of FP8 linears; linears of one input count under the first of them
  kOutputGradient,  // of FP8 linears
  kNormRow,         // rows of a norm whose sum of squares left float32
  kWeight,          // BF16 and FP8 copies of master weights
};
inline constexpr int kNonfiniteKinds = 4;

// "activations", "output gradients", "norm rows" or "weights".
const char* NameOf(NonfiniteKind kind);

struct NonfiniteCounts {
  std::array<int64_t, kNonfiniteKinds> of_kind = {};
  int64_t of(NonfiniteKind kind) const { return of_kind[static_cast<size_t>(kind)]; }
  bool any() const;
  // Takes over where `later` began if it counted anything.
  void Add(const NonfiniteCounts& later);

  // Where it began, as far as counters can tell; empty if nothing was counted. A weight explains
  // everything else, then the first of the forward pass, then the first of the backward pass.
  std::string first_module;
  NonfiniteKind first_kind = NonfiniteKind::kActivation;
};

class NonfiniteCounters {
 public:
  static int64_t Bytes(const ParameterLayout& layout);

  NonfiniteCounters() = default;
  // `counters` are Bytes(layout) of the backend's memory, which the caller owns and clears.
  NonfiniteCounters(const ParameterLayout& layout, uint64_t* counters);

  // `module` is ParameterSpec::module_index.
  uint64_t* At(int64_t module, NonfiniteKind kind) const {
    return counters_ + static_cast<int64_t>(kind) * modules() + module;
  }
  int64_t count() const { return kNonfiniteKinds * modules(); }

  // Of everything but weights, before the passes of a step.
  absl::Status ClearPasses(kernels::Backend* backend) const;
  // Before all weights are cast and quantised anew, which alone can make a weight finite again.
  absl::Status ClearWeights(kernels::Backend* backend) const;

  // Of a copy on the host.
  NonfiniteCounts Summarise(const uint64_t* counters) const;

 private:
  int64_t modules() const { return static_cast<int64_t>(names_.size()); }
  std::vector<std::string> names_;  // of the modules, in the order of the forward pass
  uint64_t* counters_ = nullptr;    // [kNonfiniteKinds, modules], weights last
};

}  // namespace octavo::engine
