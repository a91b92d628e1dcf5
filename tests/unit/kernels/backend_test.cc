// Opening backends, and their memory.
#include "kernels/backend.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace octavo::kernels {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Backend> OpenCpu(int64_t memory_bytes = 0) {
  auto backend = OpenBackend("cpu", {.memory_bytes = memory_bytes, .threads = 1});
  EXPECT_TRUE(backend.ok()) << backend.status();
  return *std::move(backend);
}

TEST(OpenBackend, TheCpuSaysWhatItIs) {
  const BackendDescription description = OpenCpu(1 << 20)->Describe();
  EXPECT_EQ(description.name, "cpu");
  EXPECT_FALSE(description.device.empty());
  EXPECT_THAT(description.matmul, HasSubstr("oneDNN"));
  EXPECT_EQ(description.memory_bytes, 1 << 20);
  EXPECT_GT(OpenCpu()->Describe().memory_bytes, 1 << 20);
}

TEST(OpenBackend, AnUnknownNameIsNotFound) {
  const auto backend = OpenBackend("tpu", {});
  EXPECT_EQ(backend.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(backend.status().message()), HasSubstr("\"cpu\" and \"cuda\""));
}

TEST(OpenBackend, WithoutThePluginCudaIsNotFoundAndItsFileIsNamed) {
  const auto backend = OpenBackend("cuda", {});
  if (backend.ok()) GTEST_SKIP() << "skipped: this machine has the CUDA plug-in and a GPU";
  EXPECT_EQ(backend.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(backend.status().message()), HasSubstr("cuda"));
}

TEST(OpenBackend, RefusesOptionsOutOfRange) {
  EXPECT_EQ(OpenBackend("cpu", {.threads = -1}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(OpenBackend("cpu", {.threads = 5000}).status().message(),
            "threads of the CPU backend is 5000, must be in [0, 1024]");
  EXPECT_EQ(OpenBackend("cpu", {.memory_bytes = -1}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(BackendMemory, IsAlignedEvenWhenEmpty) {
  const auto backend = OpenCpu();
  for (const int64_t bytes : {0, 1, 255, 257, 100000}) {
    const auto memory = backend->Allocate(bytes);
    ASSERT_TRUE(memory.ok());
    EXPECT_NE(*memory, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(*memory) % 256, 0u);
    backend->Free(*memory);
  }
  backend->Free(nullptr);
}

TEST(BackendMemory, BeyondItsLimitNamesWantedUsedAndLimit) {
  const auto backend = OpenCpu(1000);
  auto first = Buffer<float>::Create(backend.get(), 150);
  ASSERT_TRUE(first.ok());
  const auto second = Buffer<float>::Create(backend.get(), 101);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(second.status().message(),
            "allocating 404 bytes of CPU memory: 600 of 1000 are in use");
  *first = {};
  EXPECT_TRUE(Buffer<float>::Create(backend.get(), 250).ok());
}

TEST(BackendMemory, SaysWhatIsInUseAndWhatTheMostWas) {
  const auto backend = OpenCpu(1000);
  {
    const auto device = Buffer<float>::Create(backend.get(), 100);
    const auto host = HostBuffer<char>::Create(backend.get(), 300);
    ASSERT_TRUE(device.ok() && host.ok());
    EXPECT_FALSE(Buffer<float>::Create(backend.get(), 100).ok());
    EXPECT_EQ(backend->memory_use().current, 700);
  }
  const MemoryUse use = backend->memory_use();
  EXPECT_EQ(use.current, 0);
  EXPECT_EQ(use.peak, 700) << "what was refused does not count";
  EXPECT_EQ(use.limit, 1000);
}

// Scratch is memory too: attention keeps its keys and values in float32.
TEST(BackendMemory, CountsTheBackendsOwnScratch) {
  const auto backend = OpenCpu();
  const auto x = Buffer<bfloat16>::Create(backend.get(), 64 * 64);
  const auto from = Buffer<int32_t>::Create(backend.get(), 64);
  ASSERT_TRUE(x.ok() && from.ok());
  ASSERT_TRUE(backend->Run(FillZero{.memory = x->data(), .bytes = x->bytes()}).ok());
  ASSERT_TRUE(backend->Run(FillZero{.memory = from->data(), .bytes = from->bytes()}).ok());
  const int64_t before = backend->memory_use().current;
  ASSERT_TRUE(backend
                  ->Run(AttentionForward{.q = x->data(),
                                         .k = x->data(),
                                         .v = x->data(),
                                         .attend_from = from->data(),
                                         .out = x->data(),
                                         .log_sum_exp = nullptr,
                                         .q_tokens = 64,
                                         .kv_tokens = 64,
                                         .heads = 1,
                                         .kv_heads = 1,
                                         .head_dim = 64,
                                         .scale = 1})
                  .ok());
  EXPECT_GT(backend->memory_use().current, before);
}

TEST(BackendMemory, CopiesAndClears) {
  const auto backend = OpenCpu();
  const auto buffer = Buffer<int32_t>::Create(backend.get(), 3);
  const auto other = Buffer<int32_t>::Create(backend.get(), 3);
  ASSERT_TRUE(buffer.ok() && other.ok());
  const std::vector<int32_t> in = {1, 2, 3};
  std::vector<int32_t> out(3);
  ASSERT_TRUE(backend->CopyIn(buffer->data(), in.data(), 12).ok());
  ASSERT_TRUE(backend->Run(Copy{.to = other->data(), .from = buffer->data(), .bytes = 12}).ok());
  ASSERT_TRUE(backend->Run(FillZero{.memory = buffer->data(), .bytes = 4}).ok());
  ASSERT_TRUE(backend->CopyOut(out.data(), other->data(), 12).ok());
  EXPECT_EQ(out, in);
  ASSERT_TRUE(backend->CopyOut(out.data(), buffer->data(), 12).ok());
  EXPECT_EQ(out, (std::vector<int32_t>{0, 2, 3}));
  EXPECT_TRUE(backend->Synchronize().ok());
  EXPECT_EQ(backend->Run(FillZero{.memory = buffer->data(), .bytes = -1}).message(),
            "FillZero: bytes is -1, must not be negative");
  EXPECT_EQ(backend->Run(Copy{.to = nullptr, .from = buffer->data(), .bytes = 4}).message(),
            "Copy: to is null");
  EXPECT_EQ(backend->CopyIn(buffer->data(), in.data(), -1).code(),
            absl::StatusCode::kInvalidArgument);
}

// Larger than what one thread clears, with a remainder, and nothing beyond its end.
TEST(BackendMemory, ClearsWithSeveralThreads) {
  auto backend = OpenBackend("cpu", {.threads = 3});
  ASSERT_TRUE(backend.ok());
  constexpr int64_t kBytes = (5 << 20) + 123;
  const auto buffer = Buffer<char>::Create(backend->get(), kBytes + 1);
  std::vector<char> bytes(kBytes + 1, 7);
  ASSERT_TRUE((*backend)->CopyIn(buffer->data(), bytes.data(), kBytes + 1).ok());
  ASSERT_TRUE((*backend)->Run(FillZero{.memory = buffer->data(), .bytes = kBytes}).ok());
  ASSERT_TRUE((*backend)->CopyOut(bytes.data(), buffer->data(), kBytes + 1).ok());
  EXPECT_EQ(std::count(bytes.begin(), bytes.end(), 0), kBytes);
  EXPECT_EQ(bytes.back(), 7);
}

// What the base class does for every backend, seen through one that has Add alone, and that only
// for small counts.
class SmallAdds final : public Backend {
 public:
  BackendDescription Describe() const override {
    return {.name = "small", .device = "", .matmul = "", .memory_bytes = 0};
  }
  int64_t QuantizedBytes(const QuantizedSpec&) const override { return 0; }
  absl::StatusOr<void*> Allocate(int64_t) override { return absl::UnimplementedError("memory"); }
  void Free(void*) override {}
  absl::Status Reserve(const LargestOperations&) override { return absl::OkStatus(); }
  absl::Status CopyIn(void*, const void*, int64_t) override { return absl::OkStatus(); }
  MemoryUse memory_use() const override { return {}; }
  absl::StatusOr<void*> AllocateHost(int64_t) override { return absl::UnimplementedError(""); }
  void FreeHost(void*) override {}
  absl::Status EnqueueCopyIn(Queue, void*, const void*, int64_t) override {
    return absl::OkStatus();
  }
  absl::Status CopyOut(void*, const void*, int64_t) override { return absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<Event>> CreateEvent() override {
    return std::make_unique<Event>();
  }
  absl::Status Record(Queue, Event*) override { return absl::OkStatus(); }
  absl::Status Wait(Queue, const Event&) override { return absl::OkStatus(); }
  absl::Status WaitOnHost(const Event&) override { return absl::OkStatus(); }
  absl::Status Synchronize() override {
    ++waits;
    return absl::OkStatus();
  }
  int executed = 0;
  int waits = 0;

 protected:
  absl::Status Execute(const Operation& operation) override {
    ++executed;
    if (!std::holds_alternative<Add>(operation)) return absl::UnimplementedError("");
    if (std::get<Add>(operation).count > 4) return absl::UnimplementedError("more than 4 elements");
    return absl::OkStatus();
  }
};

const bfloat16 kNumbers[8] = {};
bfloat16 results[8];
const Add kAdd = {.a = kNumbers, .b = kNumbers, .y = results, .count = 4};
const size_t kAddIndex = Operation(kAdd).index();

TEST(Backend, NamesWhatItDoesNotImplement) {
  SmallAdds backend;
  const absl::Status missing = backend.Run(FillZero{.memory = results, .bytes = 1});
  EXPECT_EQ(missing.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(missing.message(), "backend \"small\" does not implement FillZero");
  Add add = kAdd;
  add.count = 5;
  EXPECT_EQ(backend.Run(add).message(),
            "backend \"small\" does not implement Add: more than 4 elements");
}

TEST(Backend, ExecutesOnlyWhatWasChecked) {
  SmallAdds backend;
  Add add = kAdd;
  add.y = nullptr;
  EXPECT_EQ(backend.Run(add).message(), "Add: y is null");
  EXPECT_EQ(backend.executed, 0);
}

TEST(Backend, TalliesWhatRanAndTimesItWhenAsked) {
  SmallAdds backend;
  EXPECT_TRUE(backend.Run(kAdd).ok());
  EXPECT_FALSE(backend.Run(FillZero{.memory = results, .bytes = 1}).ok());
  EXPECT_EQ(backend.tallies()[kAddIndex].runs, 1);
  EXPECT_EQ(backend.tallies()[kAddIndex].seconds, 0);
  EXPECT_EQ(backend.waits, 0);
  EXPECT_STREQ(kOperationNames[kAddIndex], "Add");
  backend.TimeOperations();
  EXPECT_TRUE(backend.Run(kAdd).ok());
  EXPECT_EQ(backend.tallies()[kAddIndex].runs, 2);
  EXPECT_GT(backend.tallies()[kAddIndex].seconds, 0);
  EXPECT_EQ(backend.waits, 1) << "the time of an operation that was not waited for";
  int64_t runs = 0;
  for (const OperationTally& tally : backend.tallies()) runs += tally.runs;
  EXPECT_EQ(runs, 2) << "what failed is not counted";
}

TEST(Backend, CapturesWhatRanBetweenTwoCalls) {
  SmallAdds backend;
  Program program;
  EXPECT_TRUE(backend.Run(kAdd).ok());
  backend.Capture(&program);
  EXPECT_TRUE(backend.Run(kAdd).ok());
  EXPECT_FALSE(backend.Run(FillZero{.memory = results, .bytes = 1}).ok());
  Add other = kAdd;
  other.count = 3;
  EXPECT_TRUE(backend.Run(other).ok());
  backend.Capture(nullptr);
  EXPECT_TRUE(backend.Run(kAdd).ok());
  ASSERT_EQ(program.size(), 2u);
  EXPECT_EQ(std::get<Add>(program[1]).count, 3);
  EXPECT_TRUE(backend.Run(program).ok());
  EXPECT_EQ(backend.tallies()[kAddIndex].runs, 6);
  std::get<Add>(program[0]).count = 5;
  EXPECT_EQ(backend.Run(program).code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(backend.tallies()[kAddIndex].runs, 6) << "nothing runs behind what failed";
}

}  // namespace
}  // namespace octavo::kernels
