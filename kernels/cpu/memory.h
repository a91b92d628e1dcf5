// The CPU backend's memory: aligned, counted, limited.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "absl/status/statusor.h"

namespace octavo::kernels::cpu {

class Memory {
 public:
  // `limit_bytes` 0: the machine's physical memory.
  explicit Memory(int64_t limit_bytes);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Aligned to 256 bytes, never null.
  absl::StatusOr<void*> Allocate(int64_t bytes);
  void Free(void* memory);  // null is fine

  int64_t limit_bytes() const { return limit_bytes_; }
  int64_t used_bytes() const { return used_bytes_; }

 private:
  const int64_t limit_bytes_;
  int64_t used_bytes_ = 0;
  std::unordered_map<void*, int64_t> sizes_;
};

}  // namespace octavo::kernels::cpu
