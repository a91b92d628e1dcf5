// Formula: kernels/ops/memory.h.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/operations.h"

namespace octavo::kernels::cpu {
namespace {

// A gradient of gigabytes is cleared by all threads; a piece is worth a thread's start.
constexpr int64_t kPiece = int64_t{1} << 20;

}  // namespace

absl::Status RunOperation(const Copy& operation) {
  std::memmove(operation.to, operation.from, static_cast<size_t>(operation.bytes));
  return absl::OkStatus();
}

absl::Status RunOperation(const FillZero& operation) {
  char* const memory = static_cast<char*>(operation.memory);
#pragma omp parallel for schedule(static) if (operation.bytes > kPiece)
  for (int64_t start = 0; start < operation.bytes; start += kPiece)
    std::memset(memory + start, 0, static_cast<size_t>(std::min(kPiece, operation.bytes - start)));
  return absl::OkStatus();
}

}  // namespace octavo::kernels::cpu
