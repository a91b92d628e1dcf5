#include "worker/trainer/metric_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "absl/synchronization/notification.h"

namespace octavo::trainer {
namespace {

using ::testing::ElementsAre;

MetricQueue::Points PointsOf(int64_t step) {
  MetricQueue::Points points(1);
  points[0].set_step(step);
  return points;
}

TEST(MetricQueue, SendsEverythingInOrder) {
  std::vector<int64_t> sent;
  MetricQueue queue(
      [&](const MetricQueue::Points& points) {
        sent.push_back(points[0].step());
        return absl::OkStatus();
      },
      1);
  for (int64_t step = 1; step <= 200; ++step) ASSERT_TRUE(queue.Add(PointsOf(step)).ok());
  ASSERT_TRUE(queue.Flush().ok());
  ASSERT_EQ(sent.size(), 200u);
  EXPECT_TRUE(std::is_sorted(sent.begin(), sent.end()));
}

// The agent stands still; the trainer goes on until the limit.
TEST(MetricQueue, HasRoomBelowItsLimit) {
  absl::Notification agent_goes_on;
  int sent = 0;
  MetricQueue queue(
      [&](const MetricQueue::Points&) {
        agent_goes_on.WaitForNotification();
        ++sent;
        return absl::OkStatus();
      },
      3);
  for (int64_t step = 1; step <= 3; ++step) {
    EXPECT_TRUE(queue.AwaitRoom(absl::ZeroDuration()));
    EXPECT_TRUE(queue.Add(PointsOf(step)).ok());
  }
  EXPECT_EQ(sent, 0);
  EXPECT_FALSE(queue.AwaitRoom(absl::Milliseconds(50))) << "4 are too many";
  EXPECT_FALSE(queue.AwaitSent(absl::Milliseconds(50)));
  agent_goes_on.Notify();
  EXPECT_TRUE(queue.AwaitRoom(absl::InfiniteDuration()));
  EXPECT_TRUE(queue.Flush().ok());
  EXPECT_TRUE(queue.AwaitSent(absl::ZeroDuration()));
  EXPECT_EQ(sent, 3);
}

// Training goes on meanwhile, so something always waits: a flush must end all the same.
TEST(MetricQueue, AFlushDoesNotWaitForWhatIsAddedAfterIt) {
  MetricQueue* training = nullptr;
  std::atomic<int64_t> step{1};
  std::atomic<bool> over{false};
  MetricQueue queue(
      [&](const MetricQueue::Points&) {
        // Before one step is sent, the next is there.
        return over ? absl::OkStatus() : training->Add(PointsOf(++step));
      },
      9);
  training = &queue;
  ASSERT_TRUE(queue.Add(PointsOf(1)).ok());
  EXPECT_TRUE(queue.AwaitSent(absl::Seconds(20)));
  over = true;
}

TEST(MetricQueue, TellsAnErrorToWhoeverComesNextAndSendsNoMore) {
  std::vector<int64_t> sent;
  MetricQueue queue(
      [&](const MetricQueue::Points& points) {
        sent.push_back(points[0].step());
        return absl::UnavailableError("gone");
      },
      2);
  EXPECT_TRUE(queue.Add(PointsOf(1)).ok());
  EXPECT_TRUE(absl::IsUnavailable(queue.Flush()));
  EXPECT_TRUE(absl::IsUnavailable(queue.Add(PointsOf(2))));
  EXPECT_TRUE(absl::IsUnavailable(queue.Flush()));
  EXPECT_THAT(sent, ElementsAre(1));
}

}  // namespace
}  // namespace octavo::trainer
