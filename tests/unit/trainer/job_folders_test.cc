#include "worker/trainer/job_folders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "tests/support/temporary_folder.h"

namespace octavo::trainer {
namespace {

namespace fs = std::filesystem;
using ::octavo::testing_support::TemporaryFolder;
using ::testing::UnorderedElementsAre;

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  return names;
}

class JobFoldersTest : public ::testing::Test {
 protected:
  JobFoldersTest() {
    assignment_.mutable_spec()->set_output_folder(root_.path());
    assignment_.mutable_spec()->add_stages()->mutable_checkpoint()->set_keep(2);
    assignment_.mutable_lease()->set_job_id("job");
    assignment_.mutable_lease()->set_epoch(9);
  }
  std::string Checkpoint(int64_t step, int64_t epoch) {
    const std::string name = absl::StrCat("step-0000000", step, ".epoch-", epoch);
    root_.Write(absl::StrCat("job/checkpoints/", name, "/manifest.json"), "x");
    return root_.At(absl::StrCat("job/checkpoints/", name));
  }
  TemporaryFolder root_;
  v1::Assignment assignment_;
};

// The attempt of epoch 8 wrote the checkpoint of the assignment; one of epoch 7 did not.
TEST_F(JobFoldersTest, SweepWhatEarlierAttemptsLeftOutsideOfCheckpoints) {
  assignment_.mutable_resume_from()->set_step(5);
  assignment_.mutable_resume_from()->set_epoch(8);
  assignment_.mutable_resume_from()->set_folder(Checkpoint(5, 8));
  for (const char* left_over :
       {"export.epoch-8/file", "export.epoch-7.partial-0123456789abcdef/file",
        "report.epoch-8.json", "report.epoch-7.json.01234567.tmp", "progress.epoch-7.json",
        "checkpoints/step-00000005.epoch-8.partial-0123456789abcdef/file"}) {
    root_.Write(absl::StrCat("job/", left_over), "x");
  }
  for (const char* kept :
       {"progress.epoch-8.json", "export.epoch-10/file", "report.epoch-10.json", "report.json",
        "export.epoch-7.partial-mine", "report.epoch-7.jsonl", "export.epoch-x", "notes.epoch-7"}) {
    root_.Write(absl::StrCat("job/", kept), "x");
  }
  ASSERT_TRUE(JobFolders(assignment_).Prepare().ok());
  EXPECT_THAT(
      NamesIn(root_.At("job")),
      UnorderedElementsAre("checkpoints", "progress.epoch-8.json", "export.epoch-10",
                           "report.epoch-10.json", "report.json", "export.epoch-7.partial-mine",
                           "report.epoch-7.jsonl", "export.epoch-x", "notes.epoch-7"));
  EXPECT_THAT(NamesIn(root_.At("job/checkpoints")), UnorderedElementsAre("step-00000005.epoch-8"));
}

TEST_F(JobFoldersTest, BearTheEpochOfTheirAttempt) {
  assignment_.mutable_resume_from()->set_epoch(4);
  const JobFolders folders(assignment_);
  EXPECT_EQ(folders.Export(), root_.At("job/export.epoch-9"));
  EXPECT_EQ(folders.Report(), root_.At("job/report.epoch-9.json"));
  EXPECT_EQ(folders.Progress(), root_.At("job/progress.epoch-9.json"));
  EXPECT_EQ(folders.ResumedProgress(), root_.At("job/progress.epoch-4.json"));
}

// Whoever reaches the coordinator may have told it any path.
TEST_F(JobFoldersTest, RemoveOnRequestNothingButCheckpointsOfTheJob) {
  const std::string obsolete = Checkpoint(3, 9);
  const std::vector<std::string> kept = {
      Checkpoint(4, 10),
      root_.At("job/checkpoints"),
      root_.At("job/checkpoints/notes"),
      root_.At("job/checkpoints/step-00000003.epoch-9/../../../models"),
      root_.At("job/checkpoints/within/step-00000001.epoch-1"),
      root_.At("other/checkpoints/step-00000001.epoch-1"),
      root_.At("models"),
      "checkpoints/step-00000001.epoch-1",
      "",
      "/"};
  for (const char* file :
       {"job/checkpoints/notes/file", "job/checkpoints/within/step-00000001.epoch-1/file",
        "other/checkpoints/step-00000001.epoch-1/file", "models/file"}) {
    root_.Write(file, "x");
  }
  const JobFolders folders(assignment_);
  folders.RemoveObsolete(kept);
  for (const std::string& folder : kept) {
    if (!folder.empty() && folder[0] == '/') {
      EXPECT_TRUE(fs::exists(folder)) << folder;
    }
  }
  folders.RemoveObsolete({obsolete});
  EXPECT_FALSE(fs::exists(obsolete));
}

// The attempt of epoch 8 committed step 5 and ended before it removed what that made obsolete.
TEST_F(JobFoldersTest, RemoveCheckpointsThatTheJobNoLongerKeeps) {
  Checkpoint(2, 7);
  Checkpoint(3, 7);
  Checkpoint(4, 8);
  assignment_.mutable_resume_from()->set_step(5);
  assignment_.mutable_resume_from()->set_folder(Checkpoint(5, 8));
  Checkpoint(6, 8);  // never committed
  root_.Write("job/checkpoints/step-notes/text", "not ours");
  const JobFolders folders(assignment_);
  ASSERT_TRUE(folders.Prepare().ok());
  EXPECT_EQ(NamesIn(folders.checkpoints()).size(), 5u) << "until the newest is known to be whole";
  folders.RemoveObsolete();
  EXPECT_THAT(NamesIn(folders.checkpoints()),
              UnorderedElementsAre("step-00000004.epoch-8", "step-00000005.epoch-8", "step-notes"));
}

TEST_F(JobFoldersTest, RemoveNothingWithoutACommittedCheckpoint) {
  Checkpoint(2, 10);  // of an attempt after this one
  const JobFolders folders(assignment_);
  ASSERT_TRUE(folders.Prepare().ok());
  folders.RemoveObsolete();
  EXPECT_THAT(NamesIn(folders.checkpoints()), UnorderedElementsAre("step-00000002.epoch-10"));
}

}  // namespace
}  // namespace octavo::trainer
