#include "worker/trainer/metric_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
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
TEST(MetricQueue, KeepsNobodyWaitingBelowItsLimit) {
  absl::Notification agent_goes_on;
  int sent = 0;
  MetricQueue queue(
      [&](const MetricQueue::Points&) {
        agent_goes_on.WaitForNotification();
        ++sent;
        return absl::OkStatus();
      },
      3);
  for (int64_t step = 1; step <= 3; ++step) EXPECT_TRUE(queue.Add(PointsOf(step)).ok());
  EXPECT_EQ(sent, 0);
  absl::Notification added;
  std::thread trainer([&] {
    EXPECT_TRUE(queue.Add(PointsOf(4)).ok());
    added.Notify();
  });
  EXPECT_FALSE(added.WaitForNotificationWithTimeout(absl::Milliseconds(50))) << "4 are too many";
  agent_goes_on.Notify();
  trainer.join();
  EXPECT_TRUE(queue.Flush().ok());
  EXPECT_EQ(sent, 4);
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
