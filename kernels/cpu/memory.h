// The CPU backend's memory: aligned, counted, limited.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/memory_ledger.h"

namespace octavo::kernels::cpu {

class Memory {
 public:
  // `limit_bytes` 0: the machine's physical memory.
  explicit Memory(int64_t limit_bytes);

  // Aligned to 256 bytes, never null.
  absl::StatusOr<void*> Allocate(int64_t bytes);
  void Free(void* memory);  // null is fine

  const MemoryUse& use() const { return ledger_.use(); }

 private:
  MemoryLedger ledger_;
};

}  // namespace octavo::kernels::cpu
