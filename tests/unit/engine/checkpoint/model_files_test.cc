#include "worker/engine/checkpoint/model_files.h"

#include <filesystem>

#include "gmock/gmock.h"
#include "tests/support/temporary_folder.h"

namespace octavo::engine {
namespace {

using ::octavo::testing_support::TemporaryFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

std::vector<std::string> NamesOf(const absl::StatusOr<ModelFiles>& files) {
  std::vector<std::string> names;
  for (const ModelFile& file : files->files()) names.push_back(file.name);
  return names;
}

TEST(ModelFiles, AreWhatAnExportTakesOver) {
  TemporaryFolder folder;
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "LICENSE.md", "NOTICE",
        "README.md", "model.safetensors", "pytorch_model.bin"}) {
    folder.Write(name, name);
  }
  folder.Write("config.json", "{}");
  EXPECT_THAT(NamesOf(ModelFiles::Read(folder.path(), {.with_tokenizer = true})),
              UnorderedElementsAre("config.json", "tokenizer.json", "tokenizer_config.json",
                                   "chat_template.jinja", "LICENSE.md", "NOTICE"));
  const auto files = ModelFiles::Read(folder.path(), {.with_tokenizer = false});
  EXPECT_THAT(NamesOf(files), UnorderedElementsAre("config.json", "LICENSE.md", "NOTICE"));
  EXPECT_EQ(*files->Find("NOTICE"), "NOTICE");
  EXPECT_EQ(files->Find("tokenizer.json"), nullptr);
}

TEST(ModelFiles, WithoutAConfigAreNone) {
  TemporaryFolder folder;
  const absl::Status status = ModelFiles::Read(folder.path(), {}).status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("config.json"));
}

TEST(ModelFiles, AreRefusedForWhatAnExportWouldRefuse) {
  for (const char* name : {"config.json", "generation_config.json"}) {
    TemporaryFolder folder;
    folder.Write("config.json", "{}");
    folder.Write(name, R"({"eos_token_id": 1, "eos_token_id": 2})");
    const absl::Status twice = ModelFiles::Read(folder.path(), {}).status();
    EXPECT_TRUE(absl::IsInvalidArgument(twice));
    EXPECT_THAT(std::string(twice.message()),
                AllOf(HasSubstr(folder.At(name)), HasSubstr("\"eos_token_id\" occurs twice")));
    folder.Write(name,
                 "{\"unknown\": " + std::string(100'000, '[') + std::string(100'000, ']') + "}");
    EXPECT_TRUE(absl::IsInvalidArgument(ModelFiles::Read(folder.path(), {}).status()));
  }
}

TEST(ModelFiles, HaveALimitOfBytes) {
  TemporaryFolder folder;
  folder.Write("config.json", "{}");
  folder.Write("tokenizer.json", "");
  std::filesystem::resize_file(folder.At("tokenizer.json"), ModelFiles::kMostBytes - 1);
  const absl::Status status = ModelFiles::Read(folder.path(), {}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("limit of 536870910 bytes"));
}

}  // namespace
}  // namespace octavo::engine
