#include "kernels/cpu/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/status.h"
#include "kernels/numerics/tile.h"

namespace octavo::kernels::cpu {
namespace {

constexpr int64_t kAlignment = 256;
constexpr int64_t kHugePage = int64_t{2} << 20;

int64_t PhysicalBytes() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

// Products stride over whole matrices: with pages of 4 KiB they wait for the page table. Only whole
// huge pages are asked for, so that no more becomes resident than was allocated. The system may
// decline; the memory is as good.
void AskForHugePages(void* memory, int64_t bytes) {
  madvise(memory, static_cast<size_t>(bytes / kHugePage * kHugePage), MADV_HUGEPAGE);
}

}  // namespace

Memory::Memory(int64_t limit_bytes)
    : ledger_("CPU memory", limit_bytes > 0 ? limit_bytes : PhysicalBytes()) {}

absl::StatusOr<void*> Memory::Allocate(int64_t bytes) {
  RETURN_IF_ERROR(ledger_.Check(bytes));
  const int64_t alignment = bytes >= kHugePage ? kHugePage : kAlignment;
  const int64_t rounded = CeilDiv(std::max<int64_t>(bytes, 1), alignment) * alignment;
  void* const memory =
      std::aligned_alloc(static_cast<size_t>(alignment), static_cast<size_t>(rounded));
  if (memory == nullptr) return ledger_.Exhausted(bytes);
  if (bytes >= kHugePage) AskForHugePages(memory, bytes);
  ledger_.Lend(memory, bytes);
  return memory;
}

void Memory::Free(void* memory) {
  if (memory == nullptr) return;
  ledger_.TakeBack(memory);
  std::free(memory);
}

}  // namespace octavo::kernels::cpu
