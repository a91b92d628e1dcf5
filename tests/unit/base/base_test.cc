#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>

#include "base/clock.h"
#include "base/file.h"
#include "base/reply.h"
#include "base/status.h"
#include "tests/support/temporary_folder.h"

namespace octavo {
namespace {

using ::testing::HasSubstr;
using testing_support::TemporaryFolder;

TEST(Reply, ADroppedReplyAnswersInternal) {
  std::optional<absl::StatusOr<int>> answer;
  {
    Reply<int> reply([&](absl::StatusOr<int> result) { answer = std::move(result); });
  }
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->status().code(), absl::StatusCode::kInternal);
}

TEST(Reply, OnlyTheFirstFinishCounts) {
  int calls = 0;
  Reply<int> reply([&](absl::StatusOr<int> result) { calls += *result; });
  Reply<int> moved = std::move(reply);
  moved.Finish(1);
  moved.Finish(1);
  EXPECT_EQ(calls, 1);
}

TEST(Annotate, KeepsTheCodeAndPutsTheContextFirst) {
  const absl::Status status = Annotate(absl::NotFoundError("no such row"), "reading a.txt");
  EXPECT_EQ(status, absl::NotFoundError("reading a.txt: no such row"));
  EXPECT_TRUE(Annotate(absl::OkStatus(), "x").ok());
}

TEST(WriteFileAtomically, ReplacesTheWholeFile) {
  const TemporaryFolder folder;
  const std::string path = folder.At("file");
  ASSERT_TRUE(WriteFileAtomically(path, "a longer first version").ok());
  ASSERT_TRUE(WriteFileAtomically(path, "second").ok());
  EXPECT_EQ(*ReadFile(path, 100), "second");
}

// In a child, since the limit holds for the whole process.
TEST(WriteFileAtomically, AFullDiskLeavesTheOldFileAndNothingElse) {
  const TemporaryFolder folder;
  const std::string path = folder.At("file");
  ASSERT_TRUE(WriteFileAtomically(path, "old").ok());
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{.rlim_cur = 1024, .rlim_max = 1024};
    setrlimit(RLIMIT_FSIZE, &limit);
    _exit(WriteFileAtomically(path, std::string(4096, 'x')).ok() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(*ReadFile(path, 100), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(ReadFile, ErrorsNameThePath) {
  EXPECT_THAT(ReadFile("/nowhere/file", 10).status().message(), HasSubstr("/nowhere/file"));
  EXPECT_TRUE(absl::IsNotFound(ReadFile("/nowhere/file", 10).status()));
  EXPECT_THAT(ReadFile("/tmp", 10).status().message(), HasSubstr("folder"));
}

TEST(ReadFile, RefusesWhatIsAboveTheLimit) {
  const TemporaryFolder folder;
  const std::string path = folder.At("file");
  ASSERT_TRUE(WriteFileAtomically(path, "12345").ok());
  EXPECT_TRUE(ReadFile(path, 5).ok());
  EXPECT_THAT(ReadFile(path, 4).status().message(), HasSubstr("limit of 4"));
}

TEST(OpenFile, ReadsAnywhereAndHashesAll) {
  const TemporaryFolder folder;
  const std::string content(3'000'000, 'x');
  ASSERT_TRUE(WriteFileAtomically(folder.At("file"), content + "end").ok());
  const auto file = OpenFile::Open(folder.At("file"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->bytes(), 3'000'003);
  std::string read(4, '\0');
  ASSERT_TRUE(file->ReadAt(2'999'999, 4, read.data()).ok());
  EXPECT_EQ(read, "xend");
  EXPECT_EQ(*file->Sha256(), Sha256Of(content + "end"));
}

TEST(OpenFile, AnEmptyFileIsEmptyAndWhatIsNoFileIsRefused) {
  const TemporaryFolder folder;
  ASSERT_TRUE(WriteFileAtomically(folder.At("empty"), "").ok());
  EXPECT_EQ(OpenFile::Open(folder.At("empty"))->bytes(), 0);
  EXPECT_EQ(*OpenFile::Open(folder.At("empty"))->Sha256(), Sha256Of(""));
  EXPECT_TRUE(absl::IsInvalidArgument(OpenFile::Open(folder.path()).status()));
  ASSERT_EQ(mkfifo(folder.At("pipe").c_str(), 0600), 0);
  EXPECT_TRUE(absl::IsInvalidArgument(OpenFile::Open(folder.At("pipe")).status()));
}

// Reading on in a mapping would be SIGBUS.
TEST(OpenFile, SaysThatItWasCutOffMeanwhile) {
  const TemporaryFolder folder;
  const std::string path = folder.At("file");
  ASSERT_TRUE(WriteFileAtomically(path, std::string(100'000, 'x')).ok());
  const auto file = OpenFile::Open(path);
  std::filesystem::resize_file(path, 10);
  std::string read(100, '\0');
  const absl::Status status = file->ReadAt(50'000, 100, read.data());
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(status.message(), AllOf(HasSubstr(path), HasSubstr("had 100000 bytes")));
  EXPECT_TRUE(absl::IsDataLoss(file->Sha256().status()));
}

TEST(Sha256, MatchesThePublishedExample) {  // FIPS 180-2, appendix B.1
  EXPECT_EQ(Sha256Of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(SimulatedClock, MovesOnlyWhenTold) {
  SimulatedClock clock;
  const absl::Time start = clock.Now();
  clock.Advance(absl::Seconds(3));
  EXPECT_EQ(clock.Now() - start, absl::Seconds(3));
  EXPECT_EQ(clock.Monotonic(), absl::Seconds(3));
}

}  // namespace
}  // namespace octavo
