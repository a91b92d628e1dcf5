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
  int64_t reads() const { return reads_; }              // calls of CopyOut

  kernels::BackendDescription Describe() const override { return backend_->Describe(); }
  int64_t QuantizedBytes(const kernels::QuantizedSpec& spec) const override {
    return backend_->QuantizedBytes(spec);
  }
  absl::StatusOr<void*> Allocate(int64_t bytes) override {
    absl::StatusOr<void*> memory = backend_->Allocate(bytes);
    if (memory.ok()) {
      sizes_[*memory] = bytes;
      allocated_bytes_ += bytes;
      ++allocations_;
    }
    return memory;
  }
  absl::Status Reserve(const kernels::LargestOperations& largest) override {
    return backend_->Reserve(largest);
  }
  void Free(void* memory) override {
    const auto found = sizes_.find(memory);
    if (found != sizes_.end()) {
      allocated_bytes_ -= found->second;
      sizes_.erase(found);
    }
    backend_->Free(memory);
  }
  kernels::MemoryUse memory_use() const override { return backend_->memory_use(); }
  absl::StatusOr<void*> AllocateHost(int64_t bytes) override {
    return backend_->AllocateHost(bytes);
  }
  void FreeHost(void* memory) override { backend_->FreeHost(memory); }
  absl::Status EnqueueCopyIn(kernels::Queue queue, void* to, const void* from,
                             int64_t bytes) override {
    return backend_->EnqueueCopyIn(queue, to, from, bytes);
  }
  absl::StatusOr<std::unique_ptr<kernels::Event>> CreateEvent() override {
    return backend_->CreateEvent();
  }
  absl::Status Record(kernels::Queue queue, kernels::Event* event) override {
    return backend_->Record(queue, event);
  }
  absl::Status Wait(kernels::Queue queue, const kernels::Event& event) override {
    return backend_->Wait(queue, event);
  }
  absl::Status WaitOnHost(const kernels::Event& event) override {
    return backend_->WaitOnHost(event);
  }
  absl::Status CopyIn(void* to, const void* from, int64_t bytes) override {
    return backend_->CopyIn(to, from, bytes);
  }
  absl::Status CopyOut(void* to, const void* from, int64_t bytes) override {
    ++reads_;
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
  int64_t reads_ = 0;
};

}  // namespace octavo::testing_support
