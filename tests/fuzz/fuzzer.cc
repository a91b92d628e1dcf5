// A libFuzzer program of the target that OCTAVO_FUZZ_TARGET names.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  octavo::fuzz::OCTAVO_FUZZ_TARGET({reinterpret_cast<const char*>(data), size});
  return 0;
}
