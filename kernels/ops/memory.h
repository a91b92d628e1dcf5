// Operations on bytes, in the order of the queue like every other operation.
#pragma once

#include <cstdint>

namespace octavo::kernels {

// Both ranges are the backend's and may overlap.
struct Copy {
  static constexpr char kName[] = "Copy";
  void* to;
  const void* from;
  int64_t bytes;
};

struct FillZero {
  static constexpr char kName[] = "FillZero";
  void* memory;
  int64_t bytes;
};

}  // namespace octavo::kernels
