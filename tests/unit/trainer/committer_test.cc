#include "worker/trainer/committer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/synchronization/notification.h"

namespace octavo::trainer {
namespace {

using ::testing::ElementsAre;

v1::Checkpoint CheckpointOf(int64_t step) {
  v1::Checkpoint checkpoint;
  checkpoint.set_step(step);
  return checkpoint;
}

TEST(Committer, LeavesItsOwnerFreeUntilTheAnswerComes) {
  absl::Notification coordinator_answers;
  Committer committer([&](const v1::Checkpoint&) -> Committer::ObsoleteFolders {
    coordinator_answers.WaitForNotification();
    return std::vector<std::string>{"old"};
  });
  EXPECT_FALSE(committer.busy());
  committer.Start(CheckpointOf(7));
  EXPECT_TRUE(committer.busy());
  EXPECT_FALSE(committer.TakeAnswer(absl::ZeroDuration()).has_value());
  coordinator_answers.Notify();
  const auto answer = committer.TakeAnswer(absl::InfiniteDuration());
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->checkpoint.step(), 7);
  EXPECT_THAT(*answer->obsolete_folders, ElementsAre("old"));
  EXPECT_FALSE(committer.busy());
  EXPECT_FALSE(committer.TakeAnswer(absl::ZeroDuration()).has_value()) << "it is taken once";
}

TEST(Committer, CommitsOneAfterAnotherAndHandsRefusalsOn) {
  std::vector<int64_t> steps;
  Committer committer([&](const v1::Checkpoint& checkpoint) -> Committer::ObsoleteFolders {
    steps.push_back(checkpoint.step());
    if (checkpoint.step() == 2) return absl::InvalidArgumentError("it does not follow");
    return std::vector<std::string>();
  });
  for (int64_t step = 1; step <= 3; ++step) {
    committer.Start(CheckpointOf(step));
    const auto answer = committer.TakeAnswer(absl::InfiniteDuration());
    EXPECT_EQ(answer->obsolete_folders.ok(), step != 2);
  }
  EXPECT_THAT(steps, ElementsAre(1, 2, 3));
}

}  // namespace
}  // namespace octavo::trainer
