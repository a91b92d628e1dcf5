#include "kernels/cpu/cpu_backend.h"

#include <omp.h>

#include <cstring>
#include <fstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/cpu/instruction_set.h"
#include "kernels/cpu/operations.h"
#include "kernels/cpu/workspace.h"

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

absl::Status CopyHostBytes(void* to, const void* from, int64_t bytes) {
  if (bytes < 0) return absl::InvalidArgumentError(absl::StrCat("copying ", bytes, " bytes"));
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
  return absl::OkStatus();
}

}  // namespace

CpuBackend::CpuBackend(int threads, std::unique_ptr<Memory> memory, std::unique_ptr<Matmul> matmul)
    : threads_(threads), memory_(std::move(memory)), matmul_(std::move(matmul)) {}

BackendDescription CpuBackend::Describe() const {
  return {.name = "cpu",
          .device = ProcessorName(),
          .matmul = matmul_->Describe(),
          .memory_bytes = memory_->use().limit,
          .machine = machine()};
}

absl::Status CpuBackend::Reserve(const LargestOperations& largest) {
  const ScratchSizes bytes = ScratchSizesOf(largest, machine());
  RETURN_IF_ERROR(a_scratch_.Get<char>(bytes.folded_a).status());
  RETURN_IF_ERROR(b_scratch_.Get<char>(bytes.folded_b).status());
  RETURN_IF_ERROR(attention_scratch_.Get<char>(bytes.attention).status());
  return matmul_->Reserve(bytes);
}

absl::Status CpuBackend::CopyIn(void* to, const void* from_host, int64_t bytes) {
  return CopyHostBytes(to, from_host, bytes);
}

absl::Status CpuBackend::EnqueueCopyIn(Queue, void* to, const void* from_pinned, int64_t bytes) {
  return CopyHostBytes(to, from_pinned, bytes);
}

absl::Status CpuBackend::CopyOut(void* to_host, const void* from, int64_t bytes) {
  return CopyHostBytes(to_host, from, bytes);
}

absl::Status CpuBackend::Execute(const Operation& operation) {
  omp_set_num_threads(threads_);  // of the calling thread's parallel regions
  return std::visit(
      Overloaded{
          [this](const GemmFp8& op) {
            return RunGemmFp8(op, matmul_.get(), &a_scratch_, &b_scratch_);
          },
          [this](const GemmBf16& op) { return matmul_->Run(op); },
          [this](const AttentionForward& op) { return RunAttention(op, &attention_scratch_); },
          [this](const AttentionBackward& op) { return RunAttention(op, &attention_scratch_); },
          [](const auto& op) { return RunOperation(op); },
      },
      operation);
}

absl::StatusOr<std::unique_ptr<Backend>> OpenCpuBackend(const BackendOptions& options) {
  if (options.threads < 0 || options.threads > kMaxThreads) {
    return absl::InvalidArgumentError(absl::StrCat(
        "threads of the CPU backend is ", options.threads, ", must be in [0, ", kMaxThreads, "]"));
  }
  if (options.memory_bytes < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("memory_bytes of the CPU backend is ", options.memory_bytes));
  }
  RETURN_IF_ERROR(ApplyInstructionSetLimit());
  const int threads = options.threads > 0 ? options.threads : omp_get_num_procs();
  auto memory = std::make_unique<Memory>(options.memory_bytes);
  ASSIGN_OR_RETURN(std::unique_ptr<Matmul> matmul, Matmul::Create(memory.get()));
  return std::unique_ptr<Backend>(new CpuBackend(threads, std::move(memory), std::move(matmul)));
}

}  // namespace octavo::kernels::cpu
