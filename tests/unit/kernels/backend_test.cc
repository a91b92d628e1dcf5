// Opening backends, and their memory.
#include "kernels/backend.h"

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

TEST(BackendMemory, CopiesAndClears) {
  const auto backend = OpenCpu();
  const auto buffer = Buffer<int32_t>::Create(backend.get(), 3);
  const auto other = Buffer<int32_t>::Create(backend.get(), 3);
  ASSERT_TRUE(buffer.ok() && other.ok());
  const std::vector<int32_t> in = {1, 2, 3};
  std::vector<int32_t> out(3);
  ASSERT_TRUE(backend->CopyIn(buffer->data(), in.data(), 12).ok());
  ASSERT_TRUE(backend->Copy(other->data(), buffer->data(), 12).ok());
  ASSERT_TRUE(backend->FillZero(buffer->data(), 4).ok());
  ASSERT_TRUE(backend->CopyOut(out.data(), other->data(), 12).ok());
  EXPECT_EQ(out, in);
  ASSERT_TRUE(backend->CopyOut(out.data(), buffer->data(), 12).ok());
  EXPECT_EQ(out, (std::vector<int32_t>{0, 2, 3}));
  EXPECT_TRUE(backend->Synchronize().ok());
  EXPECT_EQ(backend->FillZero(buffer->data(), -1).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace octavo::kernels
