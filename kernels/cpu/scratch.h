// Memory that a backend keeps between calls: the first touch of fresh pages is ten times slower
// than every later one.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/cpu/memory.h"

namespace octavo::kernels::cpu {

// Grows, never shrinks; contents do not survive the next Get.
class Scratch {
 public:
  explicit Scratch(Memory* memory) : memory_(memory) {}
  ~Scratch() { memory_->Free(data_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  template <typename T>
  absl::StatusOr<T*> Get(int64_t count) {
    const int64_t wanted = count * static_cast<int64_t>(sizeof(T));
    if (wanted > bytes_) {
      memory_->Free(data_);
      data_ = nullptr;
      bytes_ = 0;
      absl::StatusOr<void*> grown = memory_->Allocate(wanted);
      if (!grown.ok()) return grown.status();
      data_ = *grown;
      bytes_ = wanted;
    }
    return static_cast<T*>(data_);
  }

 private:
  Memory* memory_;  // outlives the scratch
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace octavo::kernels::cpu
