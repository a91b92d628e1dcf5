#include "worker/trainer/job_folders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
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

// From now on this process's renameat2 answers EINVAL to a wish for an exchange, as NFS does.
bool ForbidExchange() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_renameat2, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[4])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, RENAME_EXCHANGE, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter = {.len = std::size(program), .filter = program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST(ReplaceFolder, NeedsNoExchangeOfNames) {
  TemporaryFolder root;
  root.Write("export/file", "old");
  root.Write("export.epoch-2/file", "new");
  constexpr int kNotAllowed = 77;
  const pid_t child = fork();
  if (child == 0) {
    if (!ForbidExchange()) _exit(kNotAllowed);
    errno = 0;
    const std::string a = root.At("export");
    const std::string b = root.At("export.epoch-2");
    if (syscall(SYS_renameat2, -100, a.c_str(), -100, b.c_str(), RENAME_EXCHANGE) == 0) _exit(2);
    _exit(ReplaceFolder(b, a).ok() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kNotAllowed) GTEST_SKIP() << "skipped: no seccomp filter here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_THAT(NamesIn(root.path()), UnorderedElementsAre("export"));
  EXPECT_EQ(*ReadFile(root.At("export/file"), 10), "new");
}

TEST(ReplaceFolder, PutsTheOldOneBackWhenTheNewOneCannotCome) {
  TemporaryFolder root;
  root.Write("export/file", "old");
  EXPECT_FALSE(ReplaceFolder(root.At("absent"), root.At("export")).ok());
  EXPECT_EQ(*ReadFile(root.At("export/file"), 10), "old");
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

// The one moment of the fallback in which neither stands in its place.
TEST_F(JobFoldersTest, PutBackAnExportWhoseReplacementWasCutShort) {
  root_.Write("job/export.replaced/file", "old");
  root_.Write("job/export.epoch-8/file", "new");
  ASSERT_TRUE(JobFolders(assignment_).Prepare().ok());
  EXPECT_THAT(NamesIn(root_.At("job")), UnorderedElementsAre("checkpoints", "export"));
  EXPECT_EQ(*ReadFile(root_.At("job/export/file"), 10), "old");
}

TEST_F(JobFoldersTest, RemoveAnExportThatWasReplaced) {
  root_.Write("job/export.replaced/file", "old");
  root_.Write("job/export/file", "new");
  ASSERT_TRUE(JobFolders(assignment_).Prepare().ok());
  EXPECT_THAT(NamesIn(root_.At("job")), UnorderedElementsAre("checkpoints", "export"));
  EXPECT_EQ(*ReadFile(root_.At("job/export/file"), 10), "new");
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
