// What a backend must offer: memory of its own and every operation of kernels/ops on it.
//
// Pointers in operations are the backend's; the host may not look through them. What is enqueued in
// one queue runs in the order of the calls, perhaps later: a fault may be reported by a later call,
// at the latest by Synchronize(). One thread uses a backend at a time, and not always the same one.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/memory_ledger.h"
#include "kernels/operation.h"
#include "kernels/workspace.h"

namespace octavo::kernels {

struct BackendDescription {
  std::string name;      // "cpu" or "cuda"
  std::string device;    // e.g. the processor's model name
  std::string matmul;    // what carries GEMMs, e.g. "oneDNN 2.6.3 bf16 (AMX)"
  int64_t memory_bytes;  // that may be used
  Machine machine = {};  // what decides the size of a workspace
};

// GEMMs that ran, by operand type; the proof that nothing fell back silently.
struct GemmCounts {
  int64_t fp8 = 0;
  int64_t bf16 = 0;
};

// What ran of one kind of operation.
struct OperationTally {
  int64_t runs = 0;
  double seconds = 0;  // of the runs while operations were timed
};

// Between the two queues only events order anything.
enum class Queue {
  kCompute,  // operations, CopyIn and CopyOut
  kCopy,     // EnqueueCopyIn may run here beside the operations
};

// A place in a queue, set by Backend::Record. It is reached when all that was enqueued there before
// has run; one that was never recorded counts as reached. It must not outlive its backend.
class Event {
 public:
  virtual ~Event() = default;
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual BackendDescription Describe() const = 0;

  // Bytes of a QuantizedTensor. A pure function of the spec.
  virtual int64_t QuantizedBytes(const QuantizedSpec& spec) const = 0;

  // Aligned to 256 bytes, not cleared. RESOURCE_EXHAUSTED with the size wanted. `bytes` may be 0.
  virtual absl::StatusOr<void*> Allocate(int64_t bytes) = 0;
  // Waits for what uses the memory. Null is fine.
  virtual void Free(void* memory) = 0;
  // Takes the memory that these operations and all smaller ones need beside their operands, so that
  // none of them allocates any: kernels/workspace_bytes.h says how much. RESOURCE_EXHAUSTED where
  // it does not fit.
  virtual absl::Status Reserve(const LargestOperations& largest) = 0;
  // Of everything that Allocate and, where the host's memory is the device's, AllocateHost lent,
  // and of the backend's own scratch.
  virtual MemoryUse memory_use() const = 0;
  // Memory of the host that the device can read by itself.
  virtual absl::StatusOr<void*> AllocateHost(int64_t bytes) = 0;
  virtual void FreeHost(void* memory) = 0;

  // Has read `from_host`, any memory of the host, when it returns.
  virtual absl::Status CopyIn(void* to, const void* from_host, int64_t bytes) = 0;
  // Reads `from_pinned`, memory of AllocateHost, when the queue comes to it: the source must stay
  // as it is until an event recorded behind the copy has been reached.
  virtual absl::Status EnqueueCopyIn(Queue queue, void* to, const void* from_pinned,
                                     int64_t bytes) = 0;
  // Returns when `to_host` has been written, after all operations enqueued so far.
  virtual absl::Status CopyOut(void* to_host, const void* from, int64_t bytes) = 0;

  virtual absl::StatusOr<std::unique_ptr<Event>> CreateEvent() = 0;
  // From now on the event is the present end of the queue.
  virtual absl::Status Record(Queue queue, Event* event) = 0;
  // What is enqueued in the queue from here on runs after the event, as it stands now.
  virtual absl::Status Wait(Queue queue, const Event& event) = 0;
  // The calling thread waits.
  virtual absl::Status WaitOnHost(const Event& event) = 0;
  // The calling thread waits for both queues.
  virtual absl::Status Synchronize() = 0;

  // Checks the operation, hands it to the backend, and counts it. INVALID_ARGUMENT names the field
  // that is wrong, UNIMPLEMENTED names an operation that this backend does not have.
  absl::Status Run(const Operation& operation);
  // Each in its order, up to the first that fails.
  absl::Status Run(const Program& program);

  // Until the next call, every operation that runs is also appended to `program`; null ends it.
  void Capture(Program* program) { captured_ = program; }

  // From here on each operation is waited for and its time is counted: for measurements, since
  // waiting keeps operations from following each other closely.
  void TimeOperations() { timed_ = true; }
  // By Operation::index(), since the backend was opened.
  const std::array<OperationTally, kOperationKinds>& tallies() const { return tallies_; }
  GemmCounts gemm_counts() const;

 protected:
  // Enqueues a checked operation. An UNIMPLEMENTED without words says that the backend does not
  // have the operation, one with words what of it the backend does not have.
  virtual absl::Status Execute(const Operation& operation) = 0;

 private:
  std::array<OperationTally, kOperationKinds> tallies_ = {};
  bool timed_ = false;
  Program* captured_ = nullptr;
};

enum class MemoryPlace { kDevice, kPinnedHost };

// Memory of a backend, freed with the owner.
template <typename T, MemoryPlace place>
class OwnedMemory {
 public:
  OwnedMemory() = default;
  static absl::StatusOr<OwnedMemory> Create(Backend* backend, int64_t count) {
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    absl::StatusOr<void*> memory =
        place == MemoryPlace::kDevice ? backend->Allocate(bytes) : backend->AllocateHost(bytes);
    if (!memory.ok()) return memory.status();
    return OwnedMemory(backend, static_cast<T*>(*memory), count);
  }
  OwnedMemory(OwnedMemory&& other) noexcept { *this = static_cast<OwnedMemory&&>(other); }
  OwnedMemory& operator=(OwnedMemory&& other) noexcept {
    if (this != &other) {
      Release();
      backend_ = other.backend_;
      data_ = other.data_;
      count_ = other.count_;
      other.backend_ = nullptr;
      other.data_ = nullptr;
      other.count_ = 0;
    }
    return *this;
  }
  ~OwnedMemory() { Release(); }

  T* data() const { return data_; }
  int64_t count() const { return count_; }
  int64_t bytes() const { return count_ * static_cast<int64_t>(sizeof(T)); }

 private:
  OwnedMemory(Backend* backend, T* data, int64_t count)
      : backend_(backend), data_(data), count_(count) {}
  void Release() {
    if (backend_ == nullptr) return;
    if (place == MemoryPlace::kDevice) {
      backend_->Free(data_);
    } else {
      backend_->FreeHost(data_);
    }
  }
  Backend* backend_ = nullptr;  // outlives the memory
  T* data_ = nullptr;
  int64_t count_ = 0;
};

template <typename T>
using Buffer = OwnedMemory<T, MemoryPlace::kDevice>;
template <typename T>
using HostBuffer = OwnedMemory<T, MemoryPlace::kPinnedHost>;

struct BackendOptions {
  int64_t memory_bytes = 0;  // that it may use; 0: all that the device has
  int threads = 0;           // of a CPU backend; 0: one per core
  int device_index = 0;      // of a GPU
};

// "cpu", or "cuda" through the plug-in liboctavo_cuda.so beside the program. NOT_FOUND says why a
// backend is absent.
absl::StatusOr<std::unique_ptr<Backend>> OpenBackend(const std::string& name,
                                                     const BackendOptions& options);

}  // namespace octavo::kernels
