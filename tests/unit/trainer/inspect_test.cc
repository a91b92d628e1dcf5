#include "worker/trainer/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace octavo::trainer {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// A spec without violations, none of whose inputs exists.
v1::JobSpec SpecWithoutInputs(const std::string& output_folder) {
  v1::JobSpec spec;
  spec.set_name("a-job");
  spec.set_output_folder(output_folder);
  v1::Stage* stage = spec.add_stages();
  stage->set_kind("cpt");
  stage->set_steps(100);
  stage->mutable_model()->set_folder("/nonexistent/model");
  stage->mutable_data()->add_files("/nonexistent/a.txt");
  stage->mutable_data()->set_sequence_length(64);
  stage->mutable_optimizer()->set_learning_rate(1e-3);
  return spec;
}

std::vector<std::string> Fields(const v1::ValidateJobResponse& response) {
  std::vector<std::string> fields;
  for (const v1::Violation& violation : response.violations()) fields.push_back(violation.field());
  return fields;
}

class InspectJobTest : public ::testing::Test {
 protected:
  const testing_support::TemporaryFolder folder_;
};

TEST_F(InspectJobTest, ListsWrongFieldsAndWrongFilesAtOnce) {
  v1::JobSpec spec = SpecWithoutInputs(folder_.path());
  v1::Stage* stage = spec.mutable_stages(0);
  spec.set_name("Not A Name");
  stage->set_steps(-5);
  stage->set_kind("sft");
  stage->mutable_recipe()->set_name("fp4");
  stage->mutable_optimizer()->set_learning_rate(-1);
  stage->mutable_schedule()->set_warmup_steps(-1);  // of how many steps nobody knows
  stage->mutable_data()->set_sequence_length(-3);
  stage->mutable_batch()->set_micro_batch(-1);
  const v1::ValidateJobResponse response = InspectJob(spec);
  for (const char* field :
       {"name", "stages[0].steps", "stages[0].kind", "stages[0].recipe.name",
        "stages[0].optimizer.learning_rate", "stages[0].data.sequence_length",
        "stages[0].batch.micro_batch", "stages[0].model.folder", "stages[0].data.files[0]"}) {
    EXPECT_THAT(Fields(response), Contains(field).Times(1)) << field;
  }
  EXPECT_FALSE(response.has_plan()) << "it would be one of values that nobody wrote";
}

TEST_F(InspectJobTest, SurvivesASpecWithNothingInIt) {
  EXPECT_THAT(Fields(InspectJob(v1::JobSpec())), Contains("output_folder"));
  v1::JobSpec spec;
  spec.add_stages();
  EXPECT_THAT(Fields(InspectJob(spec)), Contains("stages[0].steps"));
}

TEST_F(InspectJobTest, RefusesAnOutputFolderThatIsAFileOrLiesBelowOne) {
  const std::string file = folder_.Write("file", "x");
  for (const std::string& path : {file, file + "/a/b"}) {
    const v1::ValidateJobResponse response = InspectJob(SpecWithoutInputs(path));
    ASSERT_THAT(Fields(response), Contains("output_folder")) << path;
    EXPECT_THAT(response.violations(0).message(), HasSubstr("\"" + file + "\" is a file"));
  }
}

TEST_F(InspectJobTest, AcceptsAnOutputFolderThatIsStillToBeMade) {
  EXPECT_THAT(Fields(InspectJob(SpecWithoutInputs(folder_.path() + "/a/b"))),
              Not(Contains("output_folder")));
}

// Files of a model folder and of data as others may leave them. Each must end as a violation of its
// field, and none may end the program.
TEST_F(InspectJobTest, LivesThroughGarbage) {
  const std::string deep = std::string(300'000, '[') + std::string(300'000, ']');
  const std::vector<std::string> garbage = {
      "",
      "{",
      "[]",
      "null",
      "7",
      "\"\"",
      std::string(1000, '\0'),
      "\xff\xfe\x00",
      R"({"a": 1, "a": 2})",
      R"({"model": []})",
      R"({"model": {"vocab": 7, "type": "BPE"}})",
      R"({"added_tokens": [{"content": "x", "id": "2"}], "model": [1]})",
      R"({"eos_token": {"content": []}, "eos_token_id": {}, "weight_map": {"a": 1}})",
      R"({"eos_token_id": 18446744073709551615, "vocab_size": -1, "model_type": "llama"})",
      R"({"weight_map": {"a": "../../etc/passwd"}})",
      "{\"unknown\": " + deep + "}",
      deep,
      "{\"pre_tokenizer\": " + deep + "}"};
  const std::vector<std::string> files = {"config.json",       "generation_config.json",
                                          "tokenizer.json",    "tokenizer_config.json",
                                          "model.safetensors", "model.safetensors.index.json",
                                          "data.jsonl",        "data.json",
                                          "data.txt.gz"};
  for (const std::string& file : files) {
    for (const std::string& content : garbage) {
      const testing_support::TemporaryFolder model;
      for (const std::string& other : files) model.Write(other, "{}");
      model.Write(file, content);
      v1::JobSpec spec = SpecWithoutInputs(folder_.path());
      v1::Stage* stage = spec.mutable_stages(0);
      stage->mutable_model()->set_folder(model.path());
      stage->mutable_data()->clear_files();
      for (const char* data : {"data.jsonl", "data.json", "data.txt.gz"}) {
        stage->mutable_data()->add_files(model.At(data));
      }
      const v1::ValidateJobResponse response = InspectJob(spec);
      EXPECT_THAT(Fields(response), Contains("stages[0].model.folder"))
          << file << ": " << content.substr(0, 80);
      for (const v1::Violation& violation : response.violations()) {
        EXPECT_NE(violation.message(), "");
        EXPECT_NE(violation.field(), "stages[0]") << "thrown: " << violation.message();
      }
    }
  }
}

}  // namespace
}  // namespace octavo::trainer
