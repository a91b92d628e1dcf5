#include "worker/engine/model/nonfinite.h"

#include <algorithm>

#include "base/status.h"

namespace octavo::engine {
namespace {

constexpr int64_t kCounterBytes = sizeof(uint64_t);

// The module whose counter of this kind explains the others, if there is one.
std::optional<int64_t> FirstModule(const uint64_t* of_kind, int64_t modules, NonfiniteKind kind) {
  const auto met = [](uint64_t count) { return count > 0; };
  if (kind == NonfiniteKind::kOutputGradient) {  // the backward pass begins at the end
    for (int64_t i = modules; i-- > 0;)
      if (met(of_kind[i])) return i;
    return std::nullopt;
  }
  const uint64_t* const found = std::find_if(of_kind, of_kind + modules, met);
  if (found == of_kind + modules) return std::nullopt;
  return found - of_kind;
}

}  // namespace

const char* NameOf(NonfiniteKind kind) {
  switch (kind) {
    case NonfiniteKind::kActivation:
      return "activations";
    case NonfiniteKind::kOutputGradient:
      return "output gradients";
    case NonfiniteKind::kNormRow:
      return "norm rows";
    case NonfiniteKind::kWeight:
      return "weights";
  }
  return "";
}

bool NonfiniteCounts::any() const {
  return std::any_of(of_kind.begin(), of_kind.end(), [](int64_t count) { return count > 0; });
}

void NonfiniteCounts::Add(const NonfiniteCounts& later) {
  for (size_t i = 0; i < of_kind.size(); ++i) of_kind[i] += later.of_kind[i];
  if (!later.any()) return;
  first_module = later.first_module;
  first_kind = later.first_kind;
}

int64_t NonfiniteCounters::Bytes(const ParameterLayout& layout) {
  return NonfiniteCounters(layout, nullptr).count() * kCounterBytes;
}

NonfiniteCounters::NonfiniteCounters(const ParameterLayout& layout, uint64_t* counters)
    : counters_(counters) {
  for (const ParameterSpec& parameter : layout.parameters) {
    if (parameter.module_index == modules()) names_.push_back(parameter.module);
  }
}

absl::Status NonfiniteCounters::ClearPasses(kernels::Backend* backend) const {
  return backend->Run(kernels::FillZero{
      .memory = counters_, .bytes = (kNonfiniteKinds - 1) * modules() * kCounterBytes});
}

absl::Status NonfiniteCounters::ClearWeights(kernels::Backend* backend) const {
  return backend->Run(kernels::FillZero{.memory = At(0, NonfiniteKind::kWeight),
                                        .bytes = modules() * kCounterBytes});
}

NonfiniteCounts NonfiniteCounters::Summarise(const uint64_t* counters) const {
  NonfiniteCounts counts;
  int64_t first = modules();  // of the forward pass
  // The kinds in descending order of what they explain.
  for (const NonfiniteKind kind : {NonfiniteKind::kWeight, NonfiniteKind::kActivation,
                                   NonfiniteKind::kNormRow, NonfiniteKind::kOutputGradient}) {
    const uint64_t* const of_kind = counters + static_cast<int64_t>(kind) * modules();
    uint64_t sum = 0;
    for (int64_t i = 0; i < modules(); ++i) sum += of_kind[i];
    counts.of_kind[static_cast<size_t>(kind)] = static_cast<int64_t>(sum);
    const std::optional<int64_t> module = FirstModule(of_kind, modules(), kind);
    const bool earlier = kind == NonfiniteKind::kNormRow &&
                         counts.first_kind == NonfiniteKind::kActivation && module < first;
    if (!module.has_value() || (!counts.first_module.empty() && !earlier)) continue;
    counts.first_module = names_[static_cast<size_t>(*module)];
    counts.first_kind = kind;
    first = *module;
  }
  return counts;
}

}  // namespace octavo::engine
