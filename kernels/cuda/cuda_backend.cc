// The CUDA backend as a plug-in. It has copies and the operations of operations.h so far and no
// others, so the engine cannot train on it yet. Its memory is tested through MemoryLedger, its
// queues through the rules that tests/support/deferred_backend.h plays on the CPU; both run on a
// device only in tests/device.
#include <cuda_runtime_api.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/backend.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/quantized_layout.h"
#include "kernels/plugin.h"

namespace octavo::kernels::cuda {
namespace {

absl::Status ToStatus(cudaError_t error, absl::string_view action) {
  if (error == cudaSuccess) return absl::OkStatus();
  const std::string message = absl::StrCat("cuda: ", action, ": ", cudaGetErrorString(error));
  if (error == cudaErrorMemoryAllocation) return absl::ResourceExhaustedError(message);
  if (error == cudaErrorInvalidValue) return absl::InvalidArgumentError(message);
  return absl::InternalError(message);
}

struct CudaEvent final : Event {
  explicit CudaEvent(cudaEvent_t made) : event(made) {}
  ~CudaEvent() override { cudaEventDestroy(event); }
  const cudaEvent_t event;
};

cudaEvent_t EventOf(const Event& event) { return static_cast<const CudaEvent&>(event).event; }

class CudaBackend final : public Backend {
 public:
  static absl::StatusOr<std::unique_ptr<Backend>> Open(const BackendOptions& options) {
    RETURN_IF_ERROR(ToStatus(cudaSetDevice(options.device_index), "selecting the device"));
    cudaDeviceProp properties{};
    RETURN_IF_ERROR(
        ToStatus(cudaGetDeviceProperties(&properties, options.device_index), "reading the device"));
    if (properties.major != 9) {
      return absl::FailedPreconditionError(
          absl::StrCat("cuda: ", properties.name, " has compute capability ", properties.major, ".",
                       properties.minor, "; the kernels are built for 9.0"));
    }
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    RETURN_IF_ERROR(
        ToStatus(cudaMemGetInfo(&free_bytes, &total_bytes), "reading the device's free memory"));
    int64_t limit = static_cast<int64_t>(free_bytes);
    if (options.memory_bytes > 0) limit = std::min(limit, options.memory_bytes);
    std::unique_ptr<CudaBackend> backend(new CudaBackend({.name = "cuda",
                                                          .device = properties.name,
                                                          .matmul = "mma.sync m16n8k32 e4m3",
                                                          .memory_bytes = limit},
                                                         options.device_index));
    for (cudaStream_t* stream : {&backend->compute_, &backend->copy_}) {
      RETURN_IF_ERROR(
          ToStatus(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), "creating a stream"));
    }
    return backend;
  }
  ~CudaBackend() override {
    for (const cudaStream_t stream : {compute_, copy_}) {
      if (stream != nullptr) cudaStreamDestroy(stream);
    }
  }

  BackendDescription Describe() const override { return description_; }
  int64_t QuantizedBytes(const QuantizedSpec& spec) const override {
    return cuda::QuantizedBytes(spec);
  }

  absl::StatusOr<void*> Allocate(int64_t bytes) override {
    RETURN_IF_ERROR(SelectDevice());
    RETURN_IF_ERROR(ledger_.Check(bytes));
    void* memory = nullptr;
    // A size of 0 must still give a pointer of its own.
    const cudaError_t error = cudaMalloc(&memory, static_cast<size_t>(std::max<int64_t>(bytes, 1)));
    if (error == cudaErrorMemoryAllocation) return ledger_.Exhausted(bytes);
    RETURN_IF_ERROR(ToStatus(error, absl::StrCat("allocating ", bytes, " bytes")));
    ledger_.Lend(memory, bytes);
    return memory;
  }
  void Free(void* memory) override {
    if (memory == nullptr) return;
    ledger_.TakeBack(memory);
    cudaFree(memory);  // waits for the device
  }
  // Its operations work in their operands and on the chip alone.
  absl::Status Reserve(const LargestOperations&) override { return absl::OkStatus(); }
  MemoryUse memory_use() const override { return ledger_.use(); }

  absl::StatusOr<void*> AllocateHost(int64_t bytes) override {
    RETURN_IF_ERROR(SelectDevice());
    if (bytes < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("allocating ", bytes, " bytes of pinned host memory"));
    }
    void* memory = nullptr;
    RETURN_IF_ERROR(
        ToStatus(cudaMallocHost(&memory, static_cast<size_t>(std::max<int64_t>(bytes, 1))),
                 absl::StrCat("allocating ", bytes, " bytes of pinned host memory")));
    return memory;
  }
  void FreeHost(void* memory) override { cudaFreeHost(memory); }

  // Waits: whether a copy from memory that is not pinned has left its source is the driver's
  // secret.
  absl::Status CopyIn(void* to, const void* from_host, int64_t bytes) override {
    RETURN_IF_ERROR(SelectDevice());
    RETURN_IF_ERROR(CopyBytes(compute_, to, from_host, bytes, cudaMemcpyHostToDevice));
    return WaitForStream(compute_);
  }
  absl::Status EnqueueCopyIn(Queue queue, void* to, const void* from_pinned,
                             int64_t bytes) override {
    RETURN_IF_ERROR(SelectDevice());
    return CopyBytes(StreamOf(queue), to, from_pinned, bytes, cudaMemcpyHostToDevice);
  }
  absl::Status CopyOut(void* to_host, const void* from, int64_t bytes) override {
    RETURN_IF_ERROR(SelectDevice());
    RETURN_IF_ERROR(CopyBytes(compute_, to_host, from, bytes, cudaMemcpyDeviceToHost));
    return WaitForStream(compute_);
  }

  absl::StatusOr<std::unique_ptr<Event>> CreateEvent() override {
    RETURN_IF_ERROR(SelectDevice());
    cudaEvent_t event = nullptr;
    RETURN_IF_ERROR(
        ToStatus(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "creating an event"));
    return std::make_unique<CudaEvent>(event);
  }
  absl::Status Record(Queue queue, Event* event) override {
    RETURN_IF_ERROR(SelectDevice());
    return ToStatus(cudaEventRecord(EventOf(*event), StreamOf(queue)), "recording an event");
  }
  absl::Status Wait(Queue queue, const Event& event) override {
    RETURN_IF_ERROR(SelectDevice());
    return ToStatus(cudaStreamWaitEvent(StreamOf(queue), EventOf(event), 0),
                    "waiting for an event in a queue");
  }
  absl::Status WaitOnHost(const Event& event) override {
    RETURN_IF_ERROR(SelectDevice());
    return ToStatus(cudaEventSynchronize(EventOf(event)), "waiting for an event");
  }
  absl::Status Synchronize() override {
    RETURN_IF_ERROR(SelectDevice());
    RETURN_IF_ERROR(WaitForStream(copy_));
    return WaitForStream(compute_);
  }

 protected:
  absl::Status Execute(const Operation& operation) override {
    RETURN_IF_ERROR(SelectDevice());
    const auto enqueue = [this](const auto& op) {
      return ToStatus(Enqueue(op, compute_), op.kName);
    };
    return std::visit(
        Overloaded{
            [this](const Copy& op) {
              return CopyBytes(compute_, op.to, op.from, op.bytes, cudaMemcpyDeviceToDevice);
            },
            [this](const FillZero& op) {
              return ToStatus(
                  cudaMemsetAsync(op.memory, 0, static_cast<size_t>(op.bytes), compute_), op.kName);
            },
            [&](const QuantizeTiles& op) { return enqueue(op); },
            [&](const QuantizeBlocks& op) { return enqueue(op); },
            [&](const ReadQuantized& op) { return enqueue(op); },
            [&](const WriteQuantized& op) { return enqueue(op); },
            [&](const GemmFp8& op) { return enqueue(op); },
            [&](const RmsNormForward& op) { return enqueue(op); },
            [&](const RmsNormBackward& op) { return enqueue(op); },
            [](const auto&) { return absl::UnimplementedError(""); },
        },
        operation);
  }

 private:
  CudaBackend(BackendDescription description, int device_index)
      : description_(std::move(description)),
        device_index_(device_index),
        ledger_("GPU memory", description_.memory_bytes) {}

  // The current device belongs to the thread, and threads may take turns.
  absl::Status SelectDevice() const {
    return ToStatus(cudaSetDevice(device_index_), "selecting the device");
  }
  cudaStream_t StreamOf(Queue queue) const { return queue == Queue::kCompute ? compute_ : copy_; }

  static absl::Status CopyBytes(cudaStream_t stream, void* to, const void* from, int64_t bytes,
                                cudaMemcpyKind kind) {
    return ToStatus(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, stream),
                    absl::StrCat("copying ", bytes, " bytes"));
  }
  static absl::Status WaitForStream(cudaStream_t stream) {
    return ToStatus(cudaStreamSynchronize(stream), "running queued operations");
  }

  const BackendDescription description_;
  const int device_index_;
  cudaStream_t compute_ = nullptr;
  cudaStream_t copy_ = nullptr;
  MemoryLedger ledger_;
};

}  // namespace
}  // namespace octavo::kernels::cuda

extern "C" __attribute__((visibility("default"))) octavo::kernels::Backend* octavo_cuda_open(
    int version, const octavo::kernels::BackendOptions* options, char* error, size_t error_bytes) {
  const auto refuse = [&](absl::string_view why) {
    const size_t length = why.copy(error, error_bytes - 1);
    error[length] = '\0';
    return nullptr;
  };
  if (version != octavo::kernels::kPluginVersion) {
    return refuse(absl::StrCat("the plug-in is of version ", octavo::kernels::kPluginVersion,
                               ", the program of ", version));
  }
  absl::StatusOr<std::unique_ptr<octavo::kernels::Backend>> backend =
      octavo::kernels::cuda::CudaBackend::Open(*options);
  return backend.ok() ? backend->release() : refuse(backend.status().message());
}
