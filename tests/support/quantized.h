// Quantised tensors of a test's device, in and out as plain codes and scales.
#pragma once

#include <vector>

#include "tests/support/device.h"

namespace octavo::testing_support {

struct PlainQuantized {
  std::vector<uint8_t> codes;    // [rows, columns]
  std::vector<float> scale_inv;  // [scale_rows, scale_columns]
  bool operator==(const PlainQuantized&) const = default;
};

inline kernels::QuantizedTensor MakeQuantized(Device* device, const kernels::QuantizedSpec& spec) {
  return {.spec = spec, .data = device->Make<uint8_t>((*device)->QuantizedBytes(spec))};
}

inline kernels::QuantizedTensor PutQuantized(Device* device, const kernels::QuantizedSpec& spec,
                                             const PlainQuantized& plain) {
  const kernels::QuantizedTensor tensor = MakeQuantized(device, spec);
  EXPECT_TRUE((*device)
                  ->Run(kernels::WriteQuantized{.codes = device->Put(plain.codes),
                                                .scale_inv = device->Put(plain.scale_inv),
                                                .tensor = tensor})
                  .ok());
  return tensor;
}

inline PlainQuantized GetQuantized(Device* device, const kernels::QuantizedTensor& tensor) {
  const int64_t count = tensor.spec.rows * tensor.spec.columns;
  uint8_t* const codes = device->Make<uint8_t>(count);
  float* const scales = device->Make<float>(tensor.spec.scales());
  EXPECT_TRUE(
      (*device)
          ->Run(kernels::ReadQuantized{.tensor = tensor, .codes = codes, .scale_inv = scales})
          .ok());
  return {.codes = device->Get(codes, count),
          .scale_inv = device->Get(scales, tensor.spec.scales())};
}

}  // namespace octavo::testing_support
