#include "kernels/cpu/memory.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace octavo::kernels::cpu {
namespace {

constexpr int64_t kAlignment = 256;

int64_t PhysicalBytes() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

}  // namespace

Memory::Memory(int64_t limit_bytes)
    : limit_bytes_(limit_bytes > 0 ? limit_bytes : PhysicalBytes()) {}

Memory::~Memory() { CHECK(sizes_.empty()); }

absl::StatusOr<void*> Memory::Allocate(int64_t bytes) {
  if (bytes < 0)
    return absl::InvalidArgumentError(absl::StrCat("allocating ", bytes, " bytes of CPU memory"));
  if (bytes > limit_bytes_ - used_bytes_) {
    return absl::ResourceExhaustedError(absl::StrCat("allocating ", bytes,
                                                     " bytes of CPU memory: ", used_bytes_, " of ",
                                                     limit_bytes_, " are in use"));
  }
  const int64_t rounded = (std::max<int64_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  void* const memory = std::aligned_alloc(kAlignment, static_cast<size_t>(rounded));
  if (memory == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("allocating ", bytes, " bytes of CPU memory: the system has none left, ",
                     used_bytes_, " are in use"));
  }
  used_bytes_ += bytes;
  sizes_[memory] = bytes;
  return memory;
}

void Memory::Free(void* memory) {
  if (memory == nullptr) return;
  const auto found = sizes_.find(memory);
  CHECK(found != sizes_.end());
  used_bytes_ -= found->second;
  sizes_.erase(found);
  std::free(memory);
}

}  // namespace octavo::kernels::cpu
