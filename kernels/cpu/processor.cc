#include "kernels/cpu/processor.h"

#include <atomic>

namespace octavo::kernels::cpu {
namespace {

Processor BestProcessor() {
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("fma");
  return avx512 ? Processor::kAvx512 : Processor::kPortable;
}

std::atomic<Processor>& Active() {
  static std::atomic<Processor> active = BestProcessor();
  return active;
}

}  // namespace

Processor ActiveProcessor() { return Active().load(std::memory_order_relaxed); }

void UseProcessor(Processor processor) {
  Active() = processor == Processor::kAvx512 ? BestProcessor() : processor;
}

}  // namespace octavo::kernels::cpu
