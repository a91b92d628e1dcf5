// BF16 matrix products through oneDNN. Where the processor has no BF16 products, both
// operands are widened to float32 first: the same numbers up to the order of sums.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/workspace.h"
#include "kernels/ops/matmul.h"

namespace octavo::kernels::cpu {

enum class Operands {
  kBest,     // BF16 where the processor can
  kFloat32,  // always widened; what a processor without BF16 products gets
};

// Whether a processor of oneDNN's `isa` multiplies BF16 numbers. oneDNN names an ISA by one bit for
// each extension that it has, so the answer holds for ISAs that later versions add. It emulates
// BF16 on AVX-512 without these instructions, at a third of float32's speed.
bool HasBfloat16Products(uint32_t isa);

struct WideOperands {
  float* a;
  float* b;
};

class Matmul {
 public:
  static absl::StatusOr<std::unique_ptr<Matmul>> Create(Memory* memory,
                                                        Operands operands = Operands::kBest);
  virtual ~Matmul() = default;

  virtual std::string Describe() const = 0;
  virtual bool float32_products() const = 0;  // operands are widened
  virtual absl::Status Reserve(const ScratchSizes& bytes) = 0;
  virtual absl::Status Run(const GemmBf16& operation) = 0;
  // Only with float32_products(): memory for the operands as float32, until the next product, and
  // the operation on them. Its own operands are not read.
  virtual absl::StatusOr<WideOperands> GetWideOperands(int64_t a_count, int64_t b_count) = 0;
  virtual absl::Status RunWide(const GemmBf16& operation, const WideOperands& operands) = 0;
};

}  // namespace octavo::kernels::cpu
