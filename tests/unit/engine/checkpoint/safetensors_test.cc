#include "worker/engine/checkpoint/safetensors.h"

#include "absl/types/span.h"
#include "base/status.h"
#include "gmock/gmock.h"
#include "tests/support/temporary_folder.h"
#include "worker/engine/checkpoint/safetensors_folder.h"
#include "worker/engine/checkpoint/safetensors_writer.h"
#include "worker/engine/checkpoint/weights_import.h"

namespace octavo::engine {
namespace {

using ::octavo::testing_support::TemporaryFolder;
using ::testing::HasSubstr;

TensorToWrite Filled(const std::string& name, TensorType type, std::vector<int64_t> shape,
                     const std::string& bytes) {
  return {name, type, std::move(shape),
          [bytes](const TensorToWrite::Sink& write) { return write(bytes); }};
}

// Writes `tensors` as folder/name and opens the file.
absl::StatusOr<SafetensorsFile> WriteAndOpen(const TemporaryFolder& root, const std::string& folder,
                                             const std::string& name,
                                             std::vector<TensorToWrite> tensors) {
  auto pending = PendingFolder::Create(root.At(folder));
  EXPECT_TRUE(pending.ok());
  EXPECT_TRUE(WriteSafetensors(*pending, name, std::move(tensors)).ok());
  EXPECT_TRUE(pending->Publish().ok());
  return SafetensorsFile::Open(root.At(folder + "/" + name));
}

std::string BytesOf(const SafetensorsFile& file, const std::string& tensor) {
  const TensorEntry* entry = file.Find(tensor);
  CHECK(entry != nullptr);
  std::string bytes(static_cast<size_t>(entry->end - entry->begin), '\0');
  EXPECT_TRUE(file.Read(*entry, 0, entry->end - entry->begin, bytes.data()).ok());
  return bytes;
}

TEST(SafetensorsWriter, WritesWhatTheReaderReads) {
  TemporaryFolder root;
  const auto file = WriteAndOpen(
      root, "f", "a.safetensors",
      {Filled("narrow", TensorType::kU8, {3}, "abc"),
       Filled("b", TensorType::kF32, {1, 2}, "12345678"), Filled("a", TensorType::kF32, {}, "1234"),
       Filled("none", TensorType::kBf16, {0, 7}, "")});
  ASSERT_TRUE(file.ok()) << file.status();
  std::vector<std::string> order;
  for (const TensorEntry& tensor : file->header().tensors) order.push_back(tensor.name);
  EXPECT_THAT(order, ::testing::ElementsAre("a", "b", "none", "narrow"));
  EXPECT_EQ(BytesOf(*file, "b"), "12345678");
  EXPECT_EQ(BytesOf(*file, "narrow"), "abc");
  EXPECT_TRUE(file->Find("a")->shape.empty());
}

// Loaders refuse files without the format, and read aligned data faster.
TEST(SafetensorsWriter, NamesTheFormatAndAlignsTheData) {
  TemporaryFolder root;
  const auto file =
      WriteAndOpen(root, "f", "a.safetensors", {Filled("x", TensorType::kF32, {2}, "12345678")});
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->header().metadata.at("format"), "pt");
  EXPECT_EQ(file->header().data_start() % 8, 0);
}

TEST(SafetensorsFile, SaysWhereAFileIsCutOff) {
  TemporaryFolder root;
  const auto whole =
      WriteAndOpen(root, "f", "a.safetensors", {Filled("x", TensorType::kF32, {2}, "12345678")});
  ASSERT_TRUE(whole.ok());
  const std::string path = root.At("f/a.safetensors");
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  const auto cut = SafetensorsFile::Open(path);
  EXPECT_TRUE(absl::IsInvalidArgument(cut.status()));
  EXPECT_THAT(std::string(cut.status().message()),
              AllOf(HasSubstr(path), HasSubstr("\"x\""), HasSubstr("cut off")));
}

TEST(SafetensorsFile, SaysThatItWasCutOffWhileItWasOpen) {
  TemporaryFolder root;
  const auto file =
      WriteAndOpen(root, "f", "a.safetensors", {Filled("x", TensorType::kF32, {2}, "12345678")});
  ASSERT_TRUE(file.ok());
  const std::string path = root.At("f/a.safetensors");
  std::filesystem::resize_file(path, 0);
  std::vector<float> values(2);
  const absl::Status read = DecodeTensor({&*file, file->Find("x")}, 0, absl::MakeSpan(values));
  EXPECT_TRUE(absl::IsDataLoss(read)) << read;
  EXPECT_THAT(std::string(read.message()), AllOf(HasSubstr(path), HasSubstr("cut it off")));
}

// The limit is tested before the file's size: a sparse file that holds such a header is refused
// too.
TEST(SafetensorsFile, RefusesAHeaderAboveTheFormatsLimit) {
  TemporaryFolder root;
  const std::string path =
      root.Write("big.safetensors", std::string("\x01\xE1\xF5\x05\0\0\0\0{", 9));
  std::filesystem::resize_file(path, 100'000'100);
  const auto file = SafetensorsFile::Open(path);
  EXPECT_THAT(std::string(file.status().message()), HasSubstr("limit of 100000000"));
}

TEST(SafetensorsFolder, FollowsShardsThatAreLinks) {
  TemporaryFolder root;
  ASSERT_TRUE(WriteAndOpen(root, "blobs", "sha", {Filled("x", TensorType::kU8, {1}, "1")}).ok());
  root.Write("model/model.safetensors.index.json",
             R"({"metadata": {"total_size": 1}, "weight_map": {"x": "s.safetensors"}})");
  std::filesystem::create_symlink("../blobs/sha", root.At("model/s.safetensors"));
  const auto folder = SafetensorsFolder::Open(root.At("model"));
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ(BytesOf(*folder->tensors().at("x").file, "x"), "1");
}

TEST(SafetensorsFolder, SaysThatADanglingLinkIsMissing) {
  TemporaryFolder root;
  std::filesystem::create_directory(root.At("model"));
  std::filesystem::create_symlink("../blobs/gone", root.At("model/model.safetensors"));
  const auto folder = SafetensorsFolder::Open(root.At("model"));
  EXPECT_TRUE(absl::IsNotFound(folder.status()));
  EXPECT_THAT(std::string(folder.status().message()), HasSubstr("model.safetensors"));
}

TEST(SafetensorsFolder, SaysWhatToDoWithoutWeights) {
  TemporaryFolder root;
  const auto folder = SafetensorsFolder::Open(root.path());
  EXPECT_THAT(std::string(folder.status().message()), HasSubstr("save_pretrained"));
}

}  // namespace
}  // namespace octavo::engine
