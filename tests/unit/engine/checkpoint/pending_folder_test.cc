#include "worker/engine/checkpoint/pending_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/file.h"
#include "gmock/gmock.h"
#include "tests/support/temporary_folder.h"

namespace octavo::engine {
namespace {

using ::octavo::testing_support::TemporaryFolder;

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename());
  }
  return names;
}

TEST(PendingFolder, IsInvisibleUntilItIsPublished) {
  TemporaryFolder root;
  auto pending = PendingFolder::Create(root.At("checkpoint"));
  ASSERT_TRUE(pending.ok()) << pending.status();
  const auto written = WritePendingFile(*pending, "a", "text");
  ASSERT_TRUE(written.ok());
  EXPECT_EQ(written->bytes, 4);
  EXPECT_EQ(written->sha256, Sha256Of("text"));
  EXPECT_FALSE(std::filesystem::exists(root.At("checkpoint")));
  ASSERT_TRUE(pending->Publish().ok());
  EXPECT_THAT(NamesIn(root.path()), ::testing::ElementsAre("checkpoint"));
  EXPECT_EQ(*ReadFile(root.At("checkpoint/a"), 100), "text");
}

TEST(PendingFolder, LeavesNothingBehindWhenItIsAbandoned) {
  TemporaryFolder root;
  {
    auto pending = PendingFolder::Create(root.At("checkpoint"));
    ASSERT_TRUE(pending.ok());
    ASSERT_TRUE(WritePendingFile(*pending, "a", "text").ok());
  }
  EXPECT_THAT(NamesIn(root.path()), ::testing::IsEmpty());
}

TEST(PendingFolder, NeverReplacesAFolder) {
  TemporaryFolder root;
  auto pending = PendingFolder::Create(root.At("checkpoint"));
  ASSERT_TRUE(pending.ok());
  root.Write("checkpoint/old", "old");  // appeared meanwhile
  EXPECT_TRUE(absl::IsAlreadyExists(pending->Publish()));
  EXPECT_EQ(*ReadFile(root.At("checkpoint/old"), 100), "old");
  EXPECT_TRUE(absl::IsAlreadyExists(PendingFolder::Create(root.At("checkpoint")).status()));
}

TEST(PendingFolder, RemovesWhatAKilledWriterLeft) {
  TemporaryFolder root;
  const std::string folder = root.At("checkpoint");
  const pid_t writer = fork();
  if (writer == 0) {
    auto pending = PendingFolder::Create(folder);
    if (!pending.ok() || !WritePendingFile(*pending, "a", "half").ok()) _exit(1);
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(writer, &status, 0), writer);
  ASSERT_TRUE(WIFSIGNALED(status));
  ASSERT_EQ(NamesIn(root.path()).size(), 1u);
  auto next = PendingFolder::Create(folder);
  ASSERT_TRUE(next.ok());
  ASSERT_TRUE(next->Publish().ok());
  EXPECT_THAT(NamesIn(root.path()), ::testing::ElementsAre("checkpoint"));
}

TEST(PendingFolder, LeavesAloneWhatALivingWriterFills) {
  TemporaryFolder root;
  auto first = PendingFolder::Create(root.At("a"));
  auto second = PendingFolder::Create(root.At("b"));
  ASSERT_TRUE(first.ok() && second.ok());
  ASSERT_TRUE(WritePendingFile(*first, "file", "1").ok());
  ASSERT_TRUE(second->Publish().ok());
  ASSERT_TRUE(first->Publish().ok());
  EXPECT_TRUE(std::filesystem::exists(root.At("a/file")));
}

TEST(PendingFolder, LeavesAloneWhatItDidNotName) {
  TemporaryFolder root;
  root.Write("notes.partial-me/text", "mine");
  root.Write("checkpoint.partial-0123456789abcdeg/text", "mine");
  root.Write("other.partial-0123456789abcdef/text", "of a writer whose lock is not seen here");
  auto pending = PendingFolder::Create(root.At("checkpoint"));
  ASSERT_TRUE(pending.ok());
  EXPECT_TRUE(std::filesystem::exists(root.At("notes.partial-me/text")));
  EXPECT_TRUE(std::filesystem::exists(root.At("checkpoint.partial-0123456789abcdeg/text")));
  EXPECT_TRUE(std::filesystem::exists(root.At("other.partial-0123456789abcdef/text")));
}

}  // namespace
}  // namespace octavo::engine
