#include "kernels/cpu/cpu_backend.h"

#include <omp.h>

#include <cstring>
#include <fstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/check.h"
#include "kernels/cpu/operations.h"

namespace octavo::kernels::cpu {
namespace {

constexpr int kMaxThreads = 1024;

std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (absl::StartsWith(line, "model name") && colon != std::string::npos)
      return line.substr(colon + 2);
  }
  return "unknown processor";
}

absl::Status CheckBytes(const char* operation, int64_t bytes) {
  if (bytes >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(operation, ": ", bytes, " bytes"));
}

}  // namespace

CpuBackend::CpuBackend(int threads, std::unique_ptr<Memory> memory, std::unique_ptr<Matmul> matmul)
    : threads_(threads), memory_(std::move(memory)), matmul_(std::move(matmul)) {}

BackendDescription CpuBackend::Describe() const {
  return {.name = "cpu",
          .device = ProcessorName(),
          .matmul = matmul_->Describe(),
          .memory_bytes = memory_->limit_bytes()};
}

void CpuBackend::UseThreads() const { omp_set_num_threads(threads_); }

absl::Status CpuBackend::CopyIn(void* to, const void* from_host, int64_t bytes) {
  return Copy(to, from_host, bytes);
}

absl::Status CpuBackend::CopyOut(void* to_host, const void* from, int64_t bytes) {
  return Copy(to_host, from, bytes);
}

absl::Status CpuBackend::Copy(void* to, const void* from, int64_t bytes) {
  RETURN_IF_ERROR(CheckBytes("Copy", bytes));
  if (bytes > 0) std::memmove(to, from, static_cast<size_t>(bytes));
  return absl::OkStatus();
}

absl::Status CpuBackend::FillZero(void* memory, int64_t bytes) {
  RETURN_IF_ERROR(CheckBytes("FillZero", bytes));
  if (bytes > 0) std::memset(memory, 0, static_cast<size_t>(bytes));
  return absl::OkStatus();
}

absl::Status CpuBackend::Run(const GemmFp8& operation) {
  RETURN_IF_ERROR(Check(operation));
  UseThreads();
  RETURN_IF_ERROR(RunGemmFp8(operation, matmul_.get(), &a_scratch_, &b_scratch_));
  ++gemm_counts_.fp8;
  return absl::OkStatus();
}

absl::Status CpuBackend::Run(const GemmBf16& operation) {
  RETURN_IF_ERROR(Check(operation));
  UseThreads();
  RETURN_IF_ERROR(matmul_->Run(operation));
  ++gemm_counts_.bf16;
  return absl::OkStatus();
}

absl::Status CpuBackend::Run(const AttentionForward& operation) {
  RETURN_IF_ERROR(Check(operation));
  UseThreads();
  return RunAttention(operation, &attention_scratch_);
}

absl::Status CpuBackend::Run(const AttentionBackward& operation) {
  RETURN_IF_ERROR(Check(operation));
  UseThreads();
  return RunAttention(operation, &attention_scratch_);
}

#define OCTAVO_CPU_OPERATION(Operation)                      \
  absl::Status CpuBackend::Run(const Operation& operation) { \
    RETURN_IF_ERROR(Check(operation));                       \
    UseThreads();                                            \
    return cpu::RunOperation(operation);                     \
  }
OCTAVO_CPU_OPERATION(QuantizeTiles)
OCTAVO_CPU_OPERATION(QuantizeBlocks)
OCTAVO_CPU_OPERATION(RmsNormForward)
OCTAVO_CPU_OPERATION(RmsNormBackward)
OCTAVO_CPU_OPERATION(Rope)
OCTAVO_CPU_OPERATION(Add)
OCTAVO_CPU_OPERATION(CastToBfloat16)
OCTAVO_CPU_OPERATION(SwigluForward)
OCTAVO_CPU_OPERATION(SwigluBackward)
OCTAVO_CPU_OPERATION(ColumnSum)
OCTAVO_CPU_OPERATION(SumOfSquares)
OCTAVO_CPU_OPERATION(EmbeddingForward)
OCTAVO_CPU_OPERATION(EmbeddingBackward)
OCTAVO_CPU_OPERATION(CrossEntropy)
OCTAVO_CPU_OPERATION(AdamW)
#undef OCTAVO_CPU_OPERATION

absl::StatusOr<std::unique_ptr<Backend>> OpenCpuBackend(const BackendOptions& options) {
  if (options.threads < 0 || options.threads > kMaxThreads) {
    return absl::InvalidArgumentError(absl::StrCat(
        "threads of the CPU backend is ", options.threads, ", must be in [0, ", kMaxThreads, "]"));
  }
  if (options.memory_bytes < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("memory_bytes of the CPU backend is ", options.memory_bytes));
  }
  const int threads = options.threads > 0 ? options.threads : omp_get_num_procs();
  auto memory = std::make_unique<Memory>(options.memory_bytes);
  ASSIGN_OR_RETURN(std::unique_ptr<Matmul> matmul, Matmul::Create(memory.get()));
  return std::unique_ptr<Backend>(new CpuBackend(threads, std::move(memory), std::move(matmul)));
}

}  // namespace octavo::kernels::cpu
