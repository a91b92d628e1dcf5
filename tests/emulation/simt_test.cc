// The SIMT layer itself: what it computes, and that it reports what real hardware would only do
// wrong in silence.
#include "kernels/simt/simt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda/launch.h"

namespace octavo::kernels::cuda {
namespace {

using ::testing::HasSubstr;

// Every test leaves the schedule as it found it.
class Simt : public testing::Test {
 protected:
  void TearDown() override { simt::SetScheduleSeed(0); }
};

OCTAVO_KERNEL void WriteOwnIndex(unsigned* out) {
  const unsigned block = blockIdx.y * gridDim.x + blockIdx.x;
  out[block * blockDim.x + threadIdx.x] = block * 1000 + threadIdx.x;
}

TEST_F(Simt, EveryThreadOfEveryBlockRunsOnce) {
  std::vector<unsigned> out(6 * 40, 0);
  ASSERT_EQ(Launch(WriteOwnIndex, {3, 2}, 40, nullptr, out.data()), kSuccess);
  for (unsigned block = 0; block < 6; ++block) {
    for (unsigned thread = 0; thread < 40; ++thread)
      EXPECT_EQ(out[block * 40 + thread], block * 1000 + thread);
  }
}

OCTAVO_KERNEL void ReverseThroughSharedMemory(int* data) {
  OCTAVO_SHARED(int, copy, 128);
  copy[threadIdx.x] = data[threadIdx.x];
  SyncThreads();
  data[threadIdx.x] = copy[127 - threadIdx.x];
}

TEST_F(Simt, BarriersOrderSharedMemoryUnderEverySchedule) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    simt::SetScheduleSeed(seed);
    std::vector<int> data(128);
    for (int i = 0; i < 128; ++i) data[i] = i;
    ASSERT_EQ(Launch(ReverseThroughSharedMemory, {1, 1}, 128, nullptr, data.data()), kSuccess);
    for (int i = 0; i < 128; ++i) EXPECT_EQ(data[i], 127 - i);
  }
}

OCTAVO_KERNEL void ReverseWithoutBarrier(int* data) {
  OCTAVO_SHARED(int, copy, 128);
  copy[threadIdx.x] = data[threadIdx.x];
  data[threadIdx.x] = copy[127 - threadIdx.x];
}

#ifdef OCTAVO_SANITIZE_THREAD
TEST_F(Simt, AMissingBarrierIsARaceForThreadSanitizer) {
  const auto race = [] {
    std::vector<int> data(128, 7);
    (void)Launch(ReverseWithoutBarrier, {1, 1}, 128, nullptr, data.data());
    std::exit(0);
  };
  EXPECT_EXIT(race(), testing::ExitedWithCode(66), "data race");
}
#else
TEST_F(Simt, AMissingBarrierShowsAsWrongResults) {
  std::vector<int> data(128, 7);
  ASSERT_EQ(Launch(ReverseWithoutBarrier, {1, 1}, 128, nullptr, data.data()), kSuccess);
  EXPECT_EQ(data[0], -1) << "shared memory that nobody wrote holds 0xFF bytes";
}
#endif

OCTAVO_KERNEL void BarrierForHalf() {
  if (threadIdx.x < 16) SyncThreads();
}

TEST_F(Simt, ABarrierThatSomeThreadsSkipIsReportedWithItsLine) {
  EXPECT_NE(Launch(BarrierForHalf, {1, 1}, 32, nullptr), kSuccess);
  const std::string error = simt::TakeError();
  EXPECT_THAT(error, HasSubstr("not every thread reaches the same barrier"));
  EXPECT_THAT(error, HasSubstr("simt_test.cc:"));
  EXPECT_THAT(error, HasSubstr("at exit"));
}

OCTAVO_KERNEL void TwoDifferentBarriers() {
  if (threadIdx.x < 16) {
    SyncThreads();
  } else {
    SyncThreads();
  }
}

TEST_F(Simt, ThreadsAtDifferentBarriersAreReported) {
  EXPECT_NE(Launch(TwoDifferentBarriers, {1, 1}, 32, nullptr), kSuccess);
  EXPECT_THAT(simt::TakeError(), HasSubstr("same barrier"));
}

int GatherSum(uint32_t mask, int mine) {
  int all[32] = {};
  simt::WarpGather(mask, &mine, all, sizeof(mine), {__FILE__, __LINE__});
  int sum = 0;
  for (int lane = 0; lane < 32; ++lane) sum += (mask >> lane & 1) != 0 ? all[lane] : 0;
  return sum;
}

OCTAVO_KERNEL void SumHalves(int* out) {
  const bool low = simt::Lane() < 16;
  out[threadIdx.x] = GatherSum(low ? 0x0000FFFFu : 0xFFFF0000u, static_cast<int>(simt::Lane()));
}

TEST_F(Simt, LanesNamedByAMaskMeetAndOthersDoNotDisturb) {
  std::vector<int> out(64);
  ASSERT_EQ(Launch(SumHalves, {1, 1}, 64, nullptr, out.data()), kSuccess);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(out[i], i % 32 < 16 ? 120 : 376);
}

OCTAVO_KERNEL void GatherAfterSomeLeft(int* out) {
  if (threadIdx.x >= 7 && threadIdx.x < 9) return;
  out[threadIdx.x] = GatherSum(0xFFFFFFFFu, 1);
}

TEST_F(Simt, AWarpOperationThatNamesAnExitedLaneIsReported) {
  std::vector<int> out(32);
  EXPECT_NE(Launch(GatherAfterSomeLeft, {1, 1}, 32, nullptr, out.data()), kSuccess);
  const std::string error = simt::TakeError();
  EXPECT_THAT(error, HasSubstr("waits for a lane that does not come"));
  EXPECT_THAT(error, HasSubstr("thread (7,0,0) at exit"));
}

OCTAVO_KERNEL void GatherWithTwoMasks(int* out) {
  out[threadIdx.x] = GatherSum(threadIdx.x == 3 ? 0x0000000Fu : 0xFFFFFFFFu, 1);
}

TEST_F(Simt, LanesThatNameDifferentMasksAreReported) {
  std::vector<int> out(32);
  EXPECT_NE(Launch(GatherWithTwoMasks, {1, 1}, 32, nullptr, out.data()), kSuccess);
  EXPECT_THAT(simt::TakeError(), HasSubstr("does not come"));
}

TEST_F(Simt, ALaunchAfterAFaultWorks) {
  EXPECT_NE(Launch(BarrierForHalf, {1, 1}, 32, nullptr), kSuccess);
  std::vector<unsigned> out(32, 0);
  ASSERT_EQ(Launch(WriteOwnIndex, {1, 1}, 32, nullptr, out.data()), kSuccess);
  EXPECT_EQ(out[31], 31u);
}

TEST_F(Simt, LaunchesThatCudaWouldRefuseAreRefused) {
  std::vector<unsigned> out(1, 0);
  EXPECT_NE(Launch(WriteOwnIndex, {1, 1}, 2048, nullptr, out.data()), kSuccess);
  EXPECT_NE(Launch(WriteOwnIndex, {0, 1}, 32, nullptr, out.data()), kSuccess);
}

}  // namespace
}  // namespace octavo::kernels::cuda
