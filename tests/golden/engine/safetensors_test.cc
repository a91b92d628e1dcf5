// Every file and folder of the safetensors golden: what must load, loads; what must be refused, is
// refused with a message that says what is wrong and names the tensor.
#include "worker/engine/checkpoint/safetensors.h"

#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "gmock/gmock.h"
#include "tests/support/golden.h"
#include "worker/engine/checkpoint/safetensors_folder.h"
#include "worker/engine/checkpoint/weights_import.h"

namespace octavo::engine {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Matcher;

nlohmann::json ReadCases() {
  std::ifstream file(octavo::testing_support::GoldenFolder("safetensors/cases.json"));
  return nlohmann::json::parse(file);
}

// What a message must say, by the golden's name of the fault.
const std::map<std::string, Matcher<std::string>>& Sayings() {
  static const auto& sayings = *new std::map<std::string, Matcher<std::string>>{
      {"file-too-small", HasSubstr("a header length needs 8")},
      {"header-beyond-file", HasSubstr("reaches beyond the file")},
      {"header-too-large", HasSubstr("above the format's limit of 100000000")},
      {"header-empty", HasSubstr("header length is 0")},
      {"header-json", HasSubstr("not valid JSON")},
      {"header-utf8", HasSubstr("not valid UTF-8")},
      {"header-start", HasSubstr("does not start with {")},
      {"header-padding", HasSubstr("padded with something other than spaces")},
      {"header-depth", HasSubstr("not an object")},
      {"duplicate-key", HasSubstr("occurs twice")},
      {"metadata-value", HasSubstr("not a string")},
      {"metadata-type", HasSubstr("not an object")},
      {"missing-key", AnyOf(HasSubstr("is missing"), HasSubstr("is unknown"))},
      {"tensor-type", HasSubstr("not an object")},
      {"offsets-length", HasSubstr("numbers instead of 2")},
      {"offsets-type", HasSubstr("data_offsets")},
      {"offsets-range", HasSubstr("out of range")},
      {"offsets-order", HasSubstr("end before they begin")},
      {"shape-type", AnyOf(HasSubstr("shape is"), HasSubstr("shape contains"))},
      {"size-overflow", HasSubstr("overflows")},
      {"hole", HasSubstr("leaves a hole")},
      {"overlap", HasSubstr("overlaps")},
      {"size-mismatch", HasSubstr("data_offsets give")},
      {"sub-byte", HasSubstr("do not fill whole bytes")},
      {"trailing-bytes", HasSubstr("follow the last tensor")},
      {"truncated", HasSubstr("cut off")},
      {"dtype", HasSubstr("dtype")},
      {"missing-file", HasSubstr("No such file")},
      {"tensor-not-in-shard", HasSubstr("is not in")},
      {"unmapped-tensor", AnyOf(HasSubstr("is not listed in"), HasSubstr("names no tensor"))},
      {"tensor-twice", HasSubstr("is both in")},
      {"path", HasSubstr("is not the plain name of a file")},
      {"index-type", AnyOf(HasSubstr("not an object"), HasSubstr("not a JSON object"),
                           HasSubstr("is not a string"))},
      {"index-json", HasSubstr("not valid JSON")},
  };
  return sayings;
}

void ExpectRefusal(const absl::Status& status, const nlohmann::json& one, const std::string& path) {
  ASSERT_FALSE(status.ok());
  const std::string message(status.message());
  const std::string kind = one["kind"];
  ASSERT_EQ(Sayings().count(kind), 1u) << kind;
  EXPECT_THAT(message, Sayings().at(kind));
  EXPECT_THAT(message, HasSubstr(path));
  if (!one["tensor"].is_null()) {
    EXPECT_THAT(message, HasSubstr("\"" + one["tensor"].get<std::string>() + "\""));
  }
}

void ExpectTensor(const SafetensorsFile& file, const TensorEntry& entry,
                  const nlohmann::json& expected) {
  EXPECT_EQ(TensorTypeName(entry.type), expected["dtype"].get<std::string>());
  EXPECT_EQ(entry.shape, expected["shape"].get<std::vector<int64_t>>());
  EXPECT_EQ(entry.begin, expected["data_offsets"][0]);
  EXPECT_EQ(entry.end, expected["data_offsets"][1]);
  std::string bytes(static_cast<size_t>(entry.end - entry.begin), '\0');
  ASSERT_TRUE(file.Read(entry, 0, entry.end - entry.begin, bytes.data()).ok());
  EXPECT_EQ(Sha256Of(bytes), expected["sha256"].get<std::string>());
}

void ExpectContent(const SafetensorsFile& file, const nlohmann::json& expected) {
  EXPECT_EQ(file.header().length, expected["header_length"]);
  EXPECT_EQ(file.header().data_start(), expected["data_start"]);
  if (expected["metadata"].is_object()) {
    EXPECT_EQ(file.header().metadata,
              (expected["metadata"].get<std::map<std::string, std::string>>()));
  }
  ASSERT_EQ(file.header().tensors.size(), expected["tensors"].size());
  for (const auto& [name, tensor] : expected["tensors"].items()) {
    SCOPED_TRACE(name);
    const TensorEntry* entry = file.Find(name);
    ASSERT_NE(entry, nullptr);
    ExpectTensor(file, *entry, tensor);
  }
}

TEST(GoldenSafetensors, FilesLoadExactlyOrAreRefusedByName) {
  OCTAVO_SKIP_WITHOUT_GOLDEN("safetensors/cases.json");
  int compared = 0;
  const nlohmann::json cases = ReadCases();
  for (const auto& one : cases["files"]) {
    const std::string name = one["file"];
    SCOPED_TRACE(name);
    const std::string path = octavo::testing_support::GoldenFolder("safetensors/" + name);
    if (!std::filesystem::exists(path)) continue;
    ++compared;
    const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
    if (one["ok"] == true) {
      ASSERT_TRUE(file.ok()) << file.status();
      ExpectContent(*file, one["expected"]);
    } else if (one["ok"] == false) {
      ExpectRefusal(file.status(), one, path);
    } else if (!file.ok()) {
      EXPECT_THAT(std::string(file.status().message()), HasSubstr(path));
    }
  }
  EXPECT_GT(compared, 0);
}

// A copy of the golden that kept no symbolic links has their targets' paths as files' contents.
bool LinksWereLost(const std::string& folder) {
  const std::string shard = folder + "/model-00002-of-00003.safetensors";
  const bool lost = folder.find("symlink") != std::string::npos &&
                    !std::filesystem::is_symlink(std::filesystem::symlink_status(shard));
  if (lost) std::cout << "skipped: " << shard << " is no symbolic link in this copy\n";
  return lost;
}

TEST(GoldenSafetensors, ShardedFoldersLoadExactlyOrAreRefusedByName) {
  OCTAVO_SKIP_WITHOUT_GOLDEN("safetensors/cases.json");
  int compared = 0;
  const nlohmann::json cases = ReadCases();
  for (const auto& one : cases["folders"]) {
    const std::string name = one["folder"];
    SCOPED_TRACE(name);
    const std::string path = octavo::testing_support::GoldenFolder("safetensors/" + name);
    if (!std::filesystem::exists(path) || LinksWereLost(path)) continue;
    ++compared;
    const absl::StatusOr<SafetensorsFolder> folder = SafetensorsFolder::Open(path);
    if (one["ok"] == false) ExpectRefusal(folder.status(), one, path);
    if (one["ok"] != true) continue;
    ASSERT_TRUE(folder.ok()) << folder.status();
    ASSERT_EQ(folder->tensors().size(), one["expected"].size());
    for (const auto& [tensor, expected] : one["expected"].items()) {
      SCOPED_TRACE(tensor);
      const SafetensorsFolder::Tensor& found = folder->tensors().at(tensor);
      ExpectTensor(*found.file, *found.entry, expected);
      EXPECT_THAT(found.file->path(), HasSubstr(expected["file"].get<std::string>()));
    }
    const bool warns = one.contains("warning") && one["warning"] == "total_size";
    EXPECT_EQ(folder->warnings().size(), warns ? 1u : 0u);
  }
  EXPECT_GT(compared, 0);
}

TEST(GoldenSafetensors, Fp8FoldersAreRefusedByTensorAndRemedy) {
  const std::string path =
      octavo::testing_support::GoldenFolder("safetensors/fp8_block/f32_pow2_scales");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "skipped: no golden folder at " << path;
  const absl::StatusOr<SafetensorsFolder> folder = SafetensorsFolder::Open(path);
  ASSERT_TRUE(folder.ok()) << folder.status();
  const ParameterLayout layout = LayOutParameters({.vocabulary = 67,
                                                   .hidden = 128,
                                                   .intermediate = 128,
                                                   .layers = 1,
                                                   .heads = 2,
                                                   .kv_heads = 1,
                                                   .head_dim = 64,
                                                   .tied = false});
  const WeightsCheck check = CheckWeights(*folder, layout);
  EXPECT_THAT(check.problems,
              ::testing::Contains(AllOf(HasSubstr("model.layers.0.self_attn.q_proj.weight"),
                                        HasSubstr("F8_E4M3"), HasSubstr("BF16 first"))));
}

}  // namespace
}  // namespace octavo::engine
