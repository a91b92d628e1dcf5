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
  absl::Status Synchronize() override { return backend_->Synchronize(); }

 protected:
  absl::Status Execute(const kernels::Operation& operation) override {
    return backend_->Run(operation);
  }

 private:
  std::unique_ptr<kernels::Backend> backend_;
  std::map<void*, int64_t> sizes_;
  int64_t allocated_bytes_ = 0;
  int64_t allocations_ = 0;
};

}  // namespace octavo::testing_support
