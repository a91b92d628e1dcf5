// The CUDA backend as a plug-in. It has copies and the operations of operations.h so far and no
// others, so the engine cannot train on it yet.
#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/backend.h"
#include "kernels/cuda/operations.h"
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
    cudaStream_t stream = nullptr;
    RETURN_IF_ERROR(
        ToStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "creating a stream"));
    const int64_t memory = static_cast<int64_t>(properties.totalGlobalMem);
    return std::unique_ptr<Backend>(
        new CudaBackend({.name = "cuda",
                         .device = properties.name,
                         .matmul = "mma.sync m16n8k32 e4m3",
                         .memory_bytes = options.memory_bytes > 0 && options.memory_bytes < memory
                                             ? options.memory_bytes
                                             : memory},
                        stream));
  }
  ~CudaBackend() override { cudaStreamDestroy(stream_); }

  BackendDescription Describe() const override { return description_; }

  absl::StatusOr<void*> Allocate(int64_t bytes) override {
    void* memory = nullptr;
    // A size of 0 must still give a pointer of its own.
    RETURN_IF_ERROR(ToStatus(cudaMalloc(&memory, static_cast<size_t>(bytes > 0 ? bytes : 1)),
                             absl::StrCat("allocating ", bytes, " bytes")));
    return memory;
  }
  void Free(void* memory) override { cudaFree(memory); }
  absl::Status CopyIn(void* to, const void* from_host, int64_t bytes) override {
    return CopyBytes(to, from_host, bytes, cudaMemcpyHostToDevice);
  }
  absl::Status CopyOut(void* to_host, const void* from, int64_t bytes) override {
    RETURN_IF_ERROR(CopyBytes(to_host, from, bytes, cudaMemcpyDeviceToHost));
    return Synchronize();
  }
  absl::Status Synchronize() override {
    return ToStatus(cudaStreamSynchronize(stream_), "running queued operations");
  }

 protected:
  absl::Status Execute(const Operation& operation) override {
    const auto enqueue = [this](const auto& op) {
      return ToStatus(Enqueue(op, stream_), op.kName);
    };
    return std::visit(
        Overloaded{
            [this](const Copy& op) {
              return CopyBytes(op.to, op.from, op.bytes, cudaMemcpyDeviceToDevice);
            },
            [this](const FillZero& op) {
              return ToStatus(cudaMemsetAsync(op.memory, 0, static_cast<size_t>(op.bytes), stream_),
                              op.kName);
            },
            [&](const QuantizeTiles& op) { return enqueue(op); },
            [&](const QuantizeBlocks& op) { return enqueue(op); },
            [&](const GemmFp8& op) { return enqueue(op); },
            [&](const RmsNormForward& op) { return enqueue(op); },
            [&](const RmsNormBackward& op) { return enqueue(op); },
            [](const auto&) { return absl::UnimplementedError(""); },
        },
        operation);
  }

 private:
  CudaBackend(BackendDescription description, cudaStream_t stream)
      : description_(std::move(description)), stream_(stream) {}

  absl::Status CopyBytes(void* to, const void* from, int64_t bytes, cudaMemcpyKind kind) {
    return ToStatus(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, stream_),
                    absl::StrCat("copying ", bytes, " bytes"));
  }

  const BackendDescription description_;
  const cudaStream_t stream_;
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
