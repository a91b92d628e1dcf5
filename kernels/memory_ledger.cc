#include "kernels/memory_ledger.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace octavo::kernels {

MemoryLedger::~MemoryLedger() { CHECK(sizes_.empty()); }

absl::Status MemoryLedger::Check(int64_t bytes) const {
  if (bytes < 0)
    return absl::InvalidArgumentError(absl::StrCat("allocating ", bytes, " bytes of ", owner_));
  if (bytes <= use_.limit - use_.current) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("allocating ", bytes, " bytes of ", owner_, ": ",
                                                   use_.current, " of ", use_.limit,
                                                   " are in use"));
}

absl::Status MemoryLedger::Exhausted(int64_t bytes) const {
  return absl::ResourceExhaustedError(absl::StrCat("allocating ", bytes, " bytes of ", owner_,
                                                   ": the system has none left, ", use_.current,
                                                   " are in use"));
}

void MemoryLedger::Lend(const void* memory, int64_t bytes) {
  CHECK(sizes_.emplace(memory, bytes).second);
  use_.current += bytes;
  use_.peak = std::max(use_.peak, use_.current);
}

void MemoryLedger::TakeBack(const void* memory) {
  const auto found = sizes_.find(memory);
  CHECK(found != sizes_.end());
  use_.current -= found->second;
  sizes_.erase(found);
}

}  // namespace octavo::kernels
