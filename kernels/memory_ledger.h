// What a backend lent of its memory: counted and limited.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "absl/status/status.h"

namespace octavo::kernels {

struct MemoryUse {
  int64_t current = 0;  // bytes
  int64_t peak = 0;     // the most that `current` has been
  int64_t limit = 0;
};

class MemoryLedger {
 public:
  // `owner` completes "allocating 8 bytes of ...".
  MemoryLedger(std::string owner, int64_t limit_bytes)
      : owner_(std::move(owner)), use_{.limit = limit_bytes} {}
  // Everything lent has come back.
  ~MemoryLedger();
  MemoryLedger(const MemoryLedger&) = delete;
  MemoryLedger& operator=(const MemoryLedger&) = delete;

  // Before an allocation: RESOURCE_EXHAUSTED with the size, the use and the limit.
  absl::Status Check(int64_t bytes) const;
  // The answer when the system itself had none left.
  absl::Status Exhausted(int64_t bytes) const;
  // After it.
  void Lend(const void* memory, int64_t bytes);
  // Before the memory is freed; it must have been lent.
  void TakeBack(const void* memory);

  const MemoryUse& use() const { return use_; }

 private:
  const std::string owner_;
  MemoryUse use_;
  std::unordered_map<const void*, int64_t> sizes_;
};

}  // namespace octavo::kernels
