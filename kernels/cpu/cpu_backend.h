// The CPU backend: oneDNN for GEMMs, vectors and OpenMP for the rest. Operations have run when Run
// returns. Results do not depend on the number of threads, but for GEMMs, whose blocking is
// oneDNN's.
#pragma once

#include <memory>

#include "kernels/backend.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/quantized_layout.h"
#include "kernels/cpu/scratch.h"

namespace octavo::kernels::cpu {

class CpuBackend final : public Backend {
 public:
  CpuBackend(int threads, std::unique_ptr<Memory> memory, std::unique_ptr<Matmul> matmul);

  BackendDescription Describe() const override;
  int64_t QuantizedBytes(const QuantizedSpec& spec) const override {
    return cpu::QuantizedBytes(spec);
  }

  absl::StatusOr<void*> Allocate(int64_t bytes) override { return memory_->Allocate(bytes); }
  void Free(void* memory) override { memory_->Free(memory); }
  absl::Status Reserve(const LargestOperations& largest) override;
  MemoryUse memory_use() const override { return memory_->use(); }
  absl::StatusOr<void*> AllocateHost(int64_t bytes) override { return memory_->Allocate(bytes); }
  void FreeHost(void* memory) override { memory_->Free(memory); }

  absl::Status CopyIn(void* to, const void* from_host, int64_t bytes) override;
  absl::Status EnqueueCopyIn(Queue queue, void* to, const void* from_pinned,
                             int64_t bytes) override;
  absl::Status CopyOut(void* to_host, const void* from, int64_t bytes) override;

  // All of the following: what was enqueued has run.
  absl::StatusOr<std::unique_ptr<Event>> CreateEvent() override {
    return std::make_unique<Event>();
  }
  absl::Status Record(Queue, Event*) override { return absl::OkStatus(); }
  absl::Status Wait(Queue, const Event&) override { return absl::OkStatus(); }
  absl::Status WaitOnHost(const Event&) override { return absl::OkStatus(); }
  absl::Status Synchronize() override { return absl::OkStatus(); }

 protected:
  absl::Status Execute(const Operation& operation) override;

 private:
  Machine machine() const {
    return {.threads = threads_, .float32_products = matmul_->float32_products()};
  }

  const int threads_;
  std::unique_ptr<Memory> memory_;  // outlives what follows
  std::unique_ptr<Matmul> matmul_;
  Scratch a_scratch_{memory_.get()};
  Scratch b_scratch_{memory_.get()};
  Scratch attention_scratch_{memory_.get()};
};

absl::StatusOr<std::unique_ptr<Backend>> OpenCpuBackend(const BackendOptions& options);

}  // namespace octavo::kernels::cpu
