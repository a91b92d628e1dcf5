// What MakeFolders makes is durable: a folder's name lies in its parent, which must be synced too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "tests/support/temporary_folder.h"

namespace {

std::vector<std::string>* synced = nullptr;  // paths, where a test wants to know them

}  // namespace

// The program's own fsync takes the place of the C library's.
extern "C" int fsync(int descriptor) {
  if (synced != nullptr) {
    std::error_code error;
    synced->push_back(
        std::filesystem::read_symlink(absl::StrCat("/proc/self/fd/", descriptor), error).string());
  }
  return static_cast<int>(syscall(SYS_fsync, descriptor));
}

namespace octavo {
namespace {

using ::octavo::testing_support::TemporaryFolder;

TEST(MakeFolders, MakesWhatIsMissingAndAcceptsWhatIsThere) {
  const TemporaryFolder folder;
  for (const char* path : {"a/b/c", "a/b/c", "a/b/c/d/", "a/../e", "./f/g"}) {
    EXPECT_TRUE(MakeFolders(folder.At(path)).ok()) << path;
    EXPECT_TRUE(std::filesystem::is_directory(folder.At(path))) << path;
  }
  ASSERT_TRUE(WriteFileAtomically(folder.At("file"), "").ok());
  EXPECT_FALSE(MakeFolders(folder.At("file/x")).ok());
}

TEST(MakeFolders, SyncsTheParentOfEachNewFolderAndNothingElse) {
  const TemporaryFolder folder;
  const std::string root = std::filesystem::canonical(folder.path()).string();
  std::vector<std::string> paths;
  synced = &paths;
  const absl::Status made = MakeFolders(folder.At("a/b/c"));
  EXPECT_THAT(paths, ::testing::ElementsAre(root, root + "/a", root + "/a/b"));
  paths.clear();
  const absl::Status again = MakeFolders(folder.At("a/b/c"));
  EXPECT_THAT(paths, ::testing::IsEmpty());
  synced = nullptr;
  EXPECT_TRUE(made.ok() && again.ok());
}

}  // namespace
}  // namespace octavo
