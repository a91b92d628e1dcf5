// Compares a device's backend with the CPU backend, operation by operation, through the Backend
// interface alone. Prints one JSON document; exits 1 if anything is outside its bound.
//
//   device_check [BACKEND]     default "cuda"; "cpu" checks the check itself
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/backend.h"

namespace octavo::kernels {
namespace {

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

// c = a b^T over operands that the CPU quantised, so that only the product is compared; seconds of
// the fifth run.
absl::StatusOr<std::vector<float>> Multiply(Backend* backend, const Copies& a, const Copies& b,
                                            int64_t m, int64_t n, int64_t k, double* seconds) {
  ASSIGN_OR_RETURN(const Tensor left, Write(backend, a.by_rows, TileSpec(m, k, Role::kA)));
  ASSIGN_OR_RETURN(const Tensor right, Write(backend, b.by_rows, TileSpec(n, k, Role::kB)));
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
                                                int64_t rows, int64_t columns) {
  const auto input = Put(backend, x);
  const auto weight = Put(backend, Inputs(columns, 5));
  auto y = Put(backend, std::vector<bfloat16>(x.size()));
  RETURN_IF_ERROR(backend->Run(RmsNormForward{.x = input.data(),
                                              .weight = weight.data(),
                                              .y = y.data(),
                                              .inverse_rms = nullptr,
                                              .rows = rows,
                                              .columns = columns,
                                              .epsilon = 1e-6f}));
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

void CheckShape(Backend* device, Backend* cpu, int64_t m, int64_t n, int64_t k, Report* report) {
  const std::string shape = absl::StrCat(m, "x", n, "x", k);
  const std::vector<bfloat16> x = Inputs(m * k, 1), w = Inputs(n * k, 2);
  const absl::StatusOr<Copies> a = Quantize(cpu, x, m, k), b = Quantize(cpu, w, n, k);
  const absl::StatusOr<Copies> a_device = Quantize(device, x, m, k);
  CHECK(a.ok() && b.ok());
  // Codes and scales must agree to the bit.
  report->Add("quantize_tiles " + shape, a_device.status(),
              a_device.ok() && *a_device == *a ? 0 : 2, 0);

  double seconds = 0, cpu_seconds = 0, share = 0;
  const auto expected = Multiply(cpu, *a, *b, m, n, k, &cpu_seconds);
  const auto product = Multiply(device, *a, *b, m, n, k, &seconds);
  CHECK(expected.ok());
  if (product.ok()) {
    // Both are within 4 sqrt(K) 2^-24 of the sum of magnitudes, which is at most K max|a| max|b|
    // here.
    const double bound =
        8 * std::sqrt(static_cast<double>(k)) * std::ldexp(1.0, -24) * static_cast<double>(k) * 1.2;
    for (size_t i = 0; i < product->size(); ++i) {
      share = std::max(share, std::abs(double{(*product)[i]} - (*expected)[i]) / bound);
    }
  }
  report->Add("gemm_fp8 " + shape, product.status(), share, seconds);

  const auto normalised = Normalise(device, x, m, k), reference = Normalise(cpu, x, m, k);
  CHECK(reference.ok());
  share = 0;
  for (size_t i = 0; normalised.ok() && i < normalised->size(); ++i) {
    const double exact = ToFloat((*reference)[i]);
    share = std::max(share, std::abs(ToFloat((*normalised)[i]) - exact) /
                                (std::ldexp(1.0, -6) * std::abs(exact) + 1e-38));
  }
  report->Add("rms_norm " + shape, normalised.status(), share, 0);
}

int Main(const std::string& name) {
  const auto device = OpenBackend(name, {}), cpu = OpenBackend("cpu", {});
  if (!device.ok() || !cpu.ok()) {
    std::fprintf(stderr, "device_check: %s\n",
                 std::string((device.ok() ? cpu : device).status().message()).c_str());
    return 1;
  }
  Report report;
  for (const auto& [m, n, k] : {std::tuple(1, 1, 1), std::tuple(33, 65, 129),
                                std::tuple(512, 576, 1536), std::tuple(1000, 900, 896)}) {
    CheckShape(device->get(), cpu->get(), m, n, k, &report);
  }
  return report.Print((*device)->Describe());
}

}  // namespace
}  // namespace octavo::kernels

int main(int argc, char** argv) { return octavo::kernels::Main(argc > 1 ? argv[1] : "cuda"); }
