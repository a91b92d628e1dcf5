#include "kernels/cpu/memory.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/status.h"

namespace octavo::kernels::cpu {
namespace {

constexpr int64_t kAlignment = 256;

int64_t PhysicalBytes() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

}  // namespace

Memory::Memory(int64_t limit_bytes)
    : ledger_("CPU memory", limit_bytes > 0 ? limit_bytes : PhysicalBytes()) {}

absl::StatusOr<void*> Memory::Allocate(int64_t bytes) {
  RETURN_IF_ERROR(ledger_.Check(bytes));
  const int64_t rounded = (std::max<int64_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  void* const memory = std::aligned_alloc(kAlignment, static_cast<size_t>(rounded));
  if (memory == nullptr) return ledger_.Exhausted(bytes);
  ledger_.Lend(memory, bytes);
  return memory;
}

void Memory::Free(void* memory) {
  if (memory == nullptr) return;
  ledger_.TakeBack(memory);
  std::free(memory);
}

}  // namespace octavo::kernels::cpu
