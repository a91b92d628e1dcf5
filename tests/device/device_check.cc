// Holds a backend to float64, operation by operation, through the Backend interface alone. Prints
// one JSON document; exits 1 if anything is outside its bound.
//
//   device_check [BACKEND]     default "cuda"
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/backend.h"
#include "kernels/numerics/element.h"
#include "tests/support/recipe.h"

namespace octavo::kernels {
namespace {

constexpr float kEpsilon = 1e-6f;  // of RMSNorm

// Host data in a backend's memory.
template <typename T>
Buffer<T> Put(Backend* backend, const std::vector<T>& values) {
  absl::StatusOr<Buffer<T>> buffer =
      Buffer<T>::Create(backend, static_cast<int64_t>(values.size()));
  CHECK(buffer.ok());
  CHECK(backend->CopyIn(buffer->data(), values.data(), buffer->bytes()).ok());
  return *std::move(buffer);
}

template <typename T>
std::vector<T> Get(Backend* backend, const Buffer<T>& buffer) {
  std::vector<T> values(static_cast<size_t>(buffer.count()));
  CHECK(backend->CopyOut(values.data(), buffer.data(), buffer.bytes()).ok());
  return values;
}

std::vector<bfloat16> Inputs(int64_t count, uint64_t seed) {
  std::vector<bfloat16> values(static_cast<size_t>(count));
  for (bfloat16& value : values) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;  // Knuth's MMIX generator
    value = ToBfloat16(static_cast<float>(static_cast<int64_t>(seed >> 33) - (int64_t{1} << 30)) *
                       1e-9f);
  }
  return values;
}

QuantizedSpec TileSpec(int64_t rows, int64_t columns, Role role) {
  return {.rows = rows, .columns = columns, .tile = Tile::k1x128, .role = role};
}

// Plain codes and scales of a matrix.
struct Codes {
  std::vector<uint8_t> codes;
  std::vector<float> scale_inv;
  bool operator==(const Codes&) const = default;
};

// What the tiles of [rows, columns] must become (kernels/ops/quantize.h), rounded in float64.
Codes QuantizeInFloat64(const std::vector<double>& x, int64_t rows, int64_t columns) {
  const testing_support::Format& format = testing_support::kE4m3Format;
  const int64_t across = TileSpec(rows, columns, Role::kA).scale_columns();
  Codes result{.codes = std::vector<uint8_t>(x.size()), .scale_inv = {}};
  for (int64_t tile = 0; tile < rows * across; ++tile) {
    const int64_t start = tile / across * columns + tile % across * 128;
    const int64_t end = std::min(start + 128, (tile / across + 1) * columns);
    double top = 0;
    for (int64_t i = start; i < end; ++i) top = std::max(top, std::fabs(x[i]));
    const double scale = top == 0 ? 1 : std::exp2(std::floor(std::log2(format.largest / top)));
    result.scale_inv.push_back(static_cast<float>(1 / scale));
    for (int64_t i = start; i < end; ++i) {
      const double code =
          testing_support::RoundTo(x[i] * scale, format.significant_bits, format.lowest_exponent);
      result.codes[i] = FloatToCode(Element::kE4M3, static_cast<float>(code));
    }
  }
  return result;
}

std::vector<double> Transposed(const std::vector<double>& x, int64_t rows, int64_t columns) {
  std::vector<double> result(x.size());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) result[c * rows + r] = x[r * columns + c];
  return result;
}

std::vector<double> ToDouble(const std::vector<bfloat16>& x) {
  std::vector<double> result;
  for (const bfloat16 value : x) result.push_back(ToFloat(value));
  return result;
}

// The numbers that codes and scales of [rows, columns] stand for.
std::vector<double> Decoded(const Codes& plain, int64_t columns) {
  std::vector<double> result(plain.codes.size());
  const int64_t across = (columns + 127) / 128;
  for (int64_t i = 0; i < static_cast<int64_t>(result.size()); ++i) {
    result[i] = double{CodeToFloat(Element::kE4M3, plain.codes[i])} *
                plain.scale_inv[i / columns * across + i % columns / 128];
  }
  return result;
}

struct Tensor {
  Buffer<uint8_t> memory;
  QuantizedTensor tensor;
};

Tensor MakeTensor(Backend* backend, const QuantizedSpec& spec) {
  absl::StatusOr<Buffer<uint8_t>> memory =
      Buffer<uint8_t>::Create(backend, backend->QuantizedBytes(spec));
  CHECK(memory.ok());
  void* const data = memory->data();
  return {.memory = *std::move(memory), .tensor = {.spec = spec, .data = data}};
}

absl::StatusOr<Codes> Read(Backend* backend, const QuantizedTensor& tensor) {
  const QuantizedSpec& spec = tensor.spec;
  auto codes = Put(backend, std::vector<uint8_t>(static_cast<size_t>(spec.rows * spec.columns)));
  auto scales = Put(backend, std::vector<float>(static_cast<size_t>(spec.scales())));
  RETURN_IF_ERROR(backend->Run(
      ReadQuantized{.tensor = tensor, .codes = codes.data(), .scale_inv = scales.data()}));
  return Codes{Get(backend, codes), Get(backend, scales)};
}

struct Copies {
  Codes by_rows, by_columns;
  bool operator==(const Copies&) const = default;
};

absl::StatusOr<Copies> Quantize(Backend* backend, const std::vector<bfloat16>& x, int64_t rows,
                                int64_t columns) {
  const auto input = Put(backend, x);
  const Tensor by_rows = MakeTensor(backend, TileSpec(rows, columns, Role::kA));
  const Tensor by_columns = MakeTensor(backend, TileSpec(columns, rows, Role::kA));
  RETURN_IF_ERROR(backend->Run(QuantizeTiles{
      .x = input.data(),
      .rows = rows,
      .columns = columns,
      .tiles = {
          .by_rows = by_rows.tensor, .by_columns = by_columns.tensor, .nonfinite = nullptr}}));
  Copies copies;
  ASSIGN_OR_RETURN(copies.by_rows, Read(backend, by_rows.tensor));
  ASSIGN_OR_RETURN(copies.by_columns, Read(backend, by_columns.tensor));
  return copies;
}

absl::StatusOr<Tensor> Write(Backend* backend, const Codes& plain, const QuantizedSpec& spec) {
  const auto codes = Put(backend, plain.codes);
  const auto scales = Put(backend, plain.scale_inv);
  Tensor tensor = MakeTensor(backend, spec);
  RETURN_IF_ERROR(backend->Run(
      WriteQuantized{.codes = codes.data(), .scale_inv = scales.data(), .tensor = tensor.tensor}));
  RETURN_IF_ERROR(backend->Synchronize());  // before codes and scales go
  return tensor;
}

// c = a b^T over codes that were made here, so that only the product is compared; seconds of the
// fifth run.
absl::StatusOr<std::vector<float>> Multiply(Backend* backend, const Codes& a, const Codes& b,
                                            int64_t m, int64_t n, int64_t k, double* seconds) {
  ASSIGN_OR_RETURN(const Tensor left, Write(backend, a, TileSpec(m, k, Role::kA)));
  ASSIGN_OR_RETURN(const Tensor right, Write(backend, b, TileSpec(n, k, Role::kB)));
  auto c = Put(backend, std::vector<float>(static_cast<size_t>(m * n)));
  const GemmFp8 operation = {.a = left.tensor,
                             .b = right.tensor,
                             .bias = nullptr,
                             .c = c.data(),
                             .c_type = ResultType::kFloat32,
                             .accumulate = false};
  for (int run = 0; run < 5; ++run) {
    const auto start = std::chrono::steady_clock::now();
    RETURN_IF_ERROR(backend->Run(operation));
    RETURN_IF_ERROR(backend->Synchronize());
    *seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  return Get(backend, c);
}

absl::StatusOr<std::vector<bfloat16>> Normalise(Backend* backend, const std::vector<bfloat16>& x,
                                                int64_t rows, int64_t columns,
                                                const std::vector<bfloat16>& scale) {
  const auto input = Put(backend, x);
  const auto weight = Put(backend, scale);
  auto y = Put(backend, std::vector<bfloat16>(x.size()));
  RETURN_IF_ERROR(backend->Run(RmsNormForward{.x = input.data(),
                                              .weight = weight.data(),
                                              .y = y.data(),
                                              .inverse_rms = nullptr,
                                              .rows = rows,
                                              .columns = columns,
                                              .epsilon = kEpsilon}));
  return Get(backend, y);
}

class Report {
 public:
  void Add(const std::string& name, const absl::Status& status, double share, double seconds) {
    const bool ok = status.ok() && share <= 1;
    failed_ = failed_ || !ok;
    rows_ += absl::StrCat(rows_.empty() ? "" : ",\n", "    {\"check\": \"", name,
                          "\", \"ok\": ", ok ? "true" : "false", ", \"share_of_bound\": ", share,
                          ", \"seconds\": ", seconds, ", \"error\": \"", status.message(), "\"}");
  }
  int Print(const BackendDescription& device) const {
    std::printf("{\n  \"backend\": \"%s\",\n  \"device\": \"%s\",\n  \"checks\": [\n%s\n  ]\n}\n",
                device.name.c_str(), device.device.c_str(), rows_.c_str());
    return failed_ ? 1 : 0;
  }

 private:
  std::string rows_;
  bool failed_ = false;
};

// Codes and scales must agree to the bit.
double QuantizeShare(const Copies& got, const std::vector<bfloat16>& x, int64_t rows,
                     int64_t columns) {
  const std::vector<double> exact = ToDouble(x);
  const Copies expected = {
      .by_rows = QuantizeInFloat64(exact, rows, columns),
      .by_columns = QuantizeInFloat64(Transposed(exact, rows, columns), columns, rows)};
  return got == expected ? 0 : 2;
}

// Bound of kernels/ops/gemm.h: 4 sqrt(K) 2^-24 of the sum of magnitudes, and 2^-126.
double GemmShare(const std::vector<float>& got, const std::vector<double>& a,
                 const std::vector<double>& b, int64_t n, int64_t k) {
  double share = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double* const left = &a[static_cast<int64_t>(i) / n * k];
    const double* const right = &b[static_cast<int64_t>(i) % n * k];
    double exact = 0, size = 0;
    for (int64_t l = 0; l < k; ++l) {
      exact += left[l] * right[l];
      size += std::fabs(left[l] * right[l]);
    }
    const double bound = 4 * std::sqrt(static_cast<double>(k)) * std::ldexp(size, -24);
    share = std::max(share, std::fabs(got[i] - exact) / (bound + std::ldexp(1.0, -126)));
  }
  return share;
}

// Bound of kernels/ops/norm.h: two BF16 roundings and a float32 sum.
double NormShare(const std::vector<bfloat16>& got, const std::vector<double>& x,
                 const std::vector<double>& weight) {
  const auto columns = static_cast<int64_t>(weight.size());
  const double relative = 2 * std::ldexp(1.0, -8) + std::ldexp(1.0, -16) +
                          static_cast<double>(columns) * std::ldexp(1.0, -24);
  double share = 0;
  for (size_t row = 0; row < x.size(); row += columns) {
    double squares = 0;
    for (int64_t c = 0; c < columns; ++c) squares += x[row + c] * x[row + c];
    const double r = 1 / std::sqrt(squares / static_cast<double>(columns) + kEpsilon);
    for (int64_t c = 0; c < columns; ++c) {
      const double exact = x[row + c] * r * weight[c];
      share = std::max(
          share, std::fabs(ToFloat(got[row + c]) - exact) / (relative * std::fabs(exact) + 1e-38));
    }
  }
  return share;
}

void CheckShape(Backend* device, int64_t m, int64_t n, int64_t k, Report* report) {
  const std::string shape = absl::StrCat(m, "x", n, "x", k);
  const std::vector<bfloat16> x = Inputs(m * k, 1), w = Inputs(n * k, 2);
  const absl::StatusOr<Copies> quantized = Quantize(device, x, m, k);
  report->Add("quantize_tiles " + shape, quantized.status(),
              quantized.ok() ? QuantizeShare(*quantized, x, m, k) : 0, 0);

  double seconds = 0;
  const Codes a = QuantizeInFloat64(ToDouble(x), m, k), b = QuantizeInFloat64(ToDouble(w), n, k);
  const auto product = Multiply(device, a, b, m, n, k, &seconds);
  report->Add("gemm_fp8 " + shape, product.status(),
              product.ok() ? GemmShare(*product, Decoded(a, k), Decoded(b, k), n, k) : 0, seconds);

  const std::vector<bfloat16> weight = Inputs(k, 5);
  const auto normalised = Normalise(device, x, m, k, weight);
  report->Add("rms_norm " + shape, normalised.status(),
              normalised.ok() ? NormShare(*normalised, ToDouble(x), ToDouble(weight)) : 0, 0);
}

int Main(const std::string& name) {
  const auto device = OpenBackend(name, {});
  if (!device.ok()) {
    std::fprintf(stderr, "device_check: %s\n", std::string(device.status().message()).c_str());
    return 1;
  }
  Report report;
  for (const auto& [m, n, k] : {std::tuple(1, 1, 1), std::tuple(33, 65, 129),
                                std::tuple(512, 576, 1536), std::tuple(1000, 900, 896)}) {
    CheckShape(device->get(), m, n, k, &report);
  }
  return report.Print((*device)->Describe());
}

}  // namespace
}  // namespace octavo::kernels

int main(int argc, char** argv) { return octavo::kernels::Main(argc > 1 ? argv[1] : "cuda"); }
