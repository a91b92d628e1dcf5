#include "server/storage/folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "tests/support/temporary_folder.h"

namespace octavo::storage {
namespace {

using testing::HasSubstr;
using testing_support::TemporaryFolder;

TEST(DataFolder, IsCreatedForItsUserAlone) {
  TemporaryFolder parent;
  const auto folder = DataFolder::Open(parent.path() + "/a/b");
  ASSERT_TRUE(folder.ok()) << folder.status();
  struct stat info {};
  ASSERT_EQ(stat((*folder)->path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST(DataFolder, IsHeldByOneOwner) {
  TemporaryFolder parent;
  auto first = DataFolder::Open(parent.path());
  ASSERT_TRUE(first.ok());
  const auto second = DataFolder::Open(parent.path());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr(absl::StrCat("process ", getpid())));
  *first = nullptr;
  EXPECT_TRUE(DataFolder::Open(parent.path()).ok()) << "it was let go";
}

TEST(DataFolder, IsNoFile) {
  TemporaryFolder parent;
  std::ofstream(parent.path() + "/file") << "x";
  EXPECT_EQ(DataFolder::Open(parent.path() + "/file").status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(NetworkFilesystemName, KnowsNfsAndSmbAndLetsLocalDisksPass) {
  EXPECT_STREQ(NetworkFilesystemName(0x6969), "NFS");
  EXPECT_STREQ(NetworkFilesystemName(static_cast<int>(0xFF534D42)), "SMB")
      << "sign-extended as on 32 bits";
  EXPECT_EQ(NetworkFilesystemName(0xEF53), nullptr) << "ext4";
  EXPECT_EQ(NetworkFilesystemName(0x01021994), nullptr) << "tmpfs";
}

}  // namespace
}  // namespace octavo::storage
