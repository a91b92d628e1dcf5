// A backend that counts the bytes it lends and passes everything on.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "kernels/backend.h"

namespace octavo::testing_support {

class CountingBackend final : public kernels::Backend {
 public:
  explicit CountingBackend(std::unique_ptr<kernels::Backend> backend)
      : backend_(std::move(backend)) {}

  int64_t allocated_bytes() const { return allocated_bytes_; }
  int64_t allocations() const { return allocations_; }  // ever

  kernels::BackendDescription Describe() const override { return backend_->Describe(); }
  kernels::GemmCounts gemm_counts() const override { return backend_->gemm_counts(); }
  absl::StatusOr<void*> Allocate(int64_t bytes) override {
    absl::StatusOr<void*> memory = backend_->Allocate(bytes);
    if (memory.ok()) {
      sizes_[*memory] = bytes;
      allocated_bytes_ += bytes;
      ++allocations_;
    }
    return memory;
  }
  void Free(void* memory) override {
    const auto found = sizes_.find(memory);
    if (found != sizes_.end()) {
      allocated_bytes_ -= found->second;
      sizes_.erase(found);
    }
    backend_->Free(memory);
  }
  absl::Status CopyIn(void* to, const void* from, int64_t bytes) override {
    return backend_->CopyIn(to, from, bytes);
  }
  absl::Status CopyOut(void* to, const void* from, int64_t bytes) override {
    return backend_->CopyOut(to, from, bytes);
  }
  absl::Status Copy(void* to, const void* from, int64_t bytes) override {
    return backend_->Copy(to, from, bytes);
  }
  absl::Status FillZero(void* memory, int64_t bytes) override {
    return backend_->FillZero(memory, bytes);
  }
  absl::Status Synchronize() override { return backend_->Synchronize(); }

#define OCTAVO_PASS_ON(Operation)                                  \
  absl::Status Run(const kernels::Operation& operation) override { \
    return backend_->Run(operation);                               \
  }
  OCTAVO_PASS_ON(QuantizeTiles)
  OCTAVO_PASS_ON(QuantizeBlocks)
  OCTAVO_PASS_ON(GemmFp8)
  OCTAVO_PASS_ON(GemmBf16)
  OCTAVO_PASS_ON(RmsNormForward)
  OCTAVO_PASS_ON(RmsNormBackward)
  OCTAVO_PASS_ON(Rope)
  OCTAVO_PASS_ON(AttentionForward)
  OCTAVO_PASS_ON(AttentionBackward)
  OCTAVO_PASS_ON(Add)
  OCTAVO_PASS_ON(CastToBfloat16)
  OCTAVO_PASS_ON(SwigluForward)
  OCTAVO_PASS_ON(SwigluBackward)
  OCTAVO_PASS_ON(ColumnSum)
  OCTAVO_PASS_ON(SumOfSquares)
  OCTAVO_PASS_ON(EmbeddingForward)
  OCTAVO_PASS_ON(EmbeddingBackward)
  OCTAVO_PASS_ON(CrossEntropy)
  OCTAVO_PASS_ON(AdamW)
#undef OCTAVO_PASS_ON

 private:
  std::unique_ptr<kernels::Backend> backend_;
  std::map<void*, int64_t> sizes_;
  int64_t allocated_bytes_ = 0;
  int64_t allocations_ = 0;
};

}  // namespace octavo::testing_support
