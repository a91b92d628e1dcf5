#include "proto/support/job_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "google/protobuf/util/message_differencer.h"

namespace octavo {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Property;

constexpr char kValid[] = R"(
name: tiny
output_folder: /out
stages:
  - kind: cpt
    model: {folder: /model}
    data: {files: [/data/a.txt], sequence_length: 64}
    optimizer: {learning_rate: 1e-3}
    steps: 100
)";

auto Violates(const std::string& field, const std::string& message) {
  return AllOf(Property(&v1::Violation::field, field),
               Property(&v1::Violation::message, HasSubstr(message)));
}

v1::JobSpec Valid() {
  v1::JobSpec spec = ParseJobSpec(kValid, {}).spec;
  FillDefaults(&spec);
  return spec;
}

std::vector<v1::Violation> CheckWith(const std::string& override_text) {
  ParsedSpec parsed = ParseJobSpec(kValid, {override_text});
  EXPECT_THAT(parsed.violations, IsEmpty());
  FillDefaults(&parsed.spec);
  return CheckJobSpec(parsed.spec);
}

TEST(ParseJobSpec, AMinimalFileIsValidOnceDefaultsAreFilledIn) {
  EXPECT_THAT(ParseJobSpec(kValid, {}).violations, IsEmpty());
  EXPECT_THAT(CheckJobSpec(Valid()), IsEmpty());
}

TEST(ParseJobSpec, JsonIsReadLikeYaml) {
  const ParsedSpec parsed = ParseJobSpec(R"({"name": "x", "stages": [{"steps": 3}]})", {});
  EXPECT_THAT(parsed.violations, IsEmpty());
  EXPECT_EQ(parsed.spec.stages(0).steps(), 3);
}

TEST(ParseJobSpec, EveryProblemIsReportedAtOnceWithItsPath) {
  const ParsedSpec parsed = ParseJobSpec(R"(
name: x
nmae: y
stages:
  - stepz: 5
    steps: many
    data: {files: one.txt, sequence_length: 1.5}
    seed: -1
)",
                                         {});
  EXPECT_THAT(
      parsed.violations,
      ElementsAre(Violates("nmae", "did you mean \"name\"?"),
                  Violates("stages[0].stepz", "did you mean \"steps\"?"),
                  Violates("stages[0].steps", "\"many\" is not a whole number"),
                  Violates("stages[0].data.files", "where a list must"),
                  Violates("stages[0].data.sequence_length", "\"1.5\" is not a whole number"),
                  Violates("stages[0].seed", "\"-1\" is not a whole number of 0 or more")));
}

TEST(ParseJobSpec, AFieldGivenTwiceIsAnError) {
  EXPECT_THAT(ParseJobSpec("name: a\nname: b\n", {}).violations,
              ElementsAre(Violates("name", "twice")));
}

TEST(ParseJobSpec, QuotedDigitsAreTextAndNotANumber) {
  EXPECT_THAT(ParseJobSpec("priority: \"5\"", {}).violations,
              ElementsAre(Violates("priority", "not a whole")));
}

TEST(ParseJobSpec, BrokenYamlNamesLineAndColumn) {
  EXPECT_THAT(ParseJobSpec("name: [a\nb: c", {}).violations,
              ElementsAre(Violates("(file)", "line 2")));
  EXPECT_THAT(ParseJobSpec("", {}).violations, ElementsAre(Violates("(file)", "empty")));
  EXPECT_THAT(ParseJobSpec("- a", {}).violations, ElementsAre(Violates("(file)", "map")));
}

TEST(ParseJobSpec, WhatIsNotUtf8IsRefusedByItsLine) {
  EXPECT_THAT(ParseJobSpec("name: x\noutput_folder: \xFF\n", {}).violations,
              ElementsAre(Violates(kWholeFile, "line 2 is not UTF-8")));
  EXPECT_THAT(ParseJobSpec(kValid, {"name=\xFF"}).violations,
              ElementsAre(Violates("(override)", "not UTF-8")));
}

TEST(ParseJobSpec, DeepNestingIsRefusedAndDoesNotOverflow) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += "{a: ";
  EXPECT_FALSE(ParseJobSpec(text, {}).violations.empty());
}

TEST(ParseJobSpec, OverridesSetValuesAndGrowLists) {
  const ParsedSpec parsed = ParseJobSpec(
      kValid,
      {"stages[0].steps=7", "stages[0].data.files[1]=/b.txt", "stages[0].recipe.name=bf16"});
  EXPECT_THAT(parsed.violations, IsEmpty());
  EXPECT_EQ(parsed.spec.stages(0).steps(), 7);
  EXPECT_EQ(parsed.spec.stages(0).data().files(1), "/b.txt");
  EXPECT_EQ(parsed.spec.stages(0).recipe().name(), "bf16");
}

TEST(ParseJobSpec, ABadOverrideIsReported) {
  EXPECT_THAT(ParseJobSpec(kValid, {"steps"}).violations,
              ElementsAre(Violates("steps", "path=value")));
  EXPECT_THAT(ParseJobSpec(kValid, {"stages[4].steps=1"}).violations,
              ElementsAre(Violates("stages[4].steps", "past the end")));
  EXPECT_THAT(ParseJobSpec(kValid, {"name.x=1"}).violations,
              ElementsAre(Violates("name.x", "through a value")));
}

TEST(PrintJobSpec, WhatIsPrintedParsesToTheSameSpec) {
  v1::JobSpec spec = Valid();
  spec.mutable_stages(0)->mutable_data()->set_document_separator("\n\"x\"");
  spec.mutable_stages(0)->mutable_optimizer()->set_learning_rate(0.1);
  const ParsedSpec parsed = ParseJobSpec(PrintJobSpec(spec), {});
  EXPECT_THAT(parsed.violations, IsEmpty());
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(parsed.spec, spec))
      << PrintJobSpec(spec);
  EXPECT_THAT(PrintJobSpec(spec), HasSubstr("learning_rate: 0.1\n"));
}

TEST(FillDefaults, IsIdempotent) {
  v1::JobSpec twice = Valid();
  FillDefaults(&twice);
  EXPECT_EQ(JobSpecSha256(twice), JobSpecSha256(Valid()));
}

TEST(JobSpecSha256, ChangesWithAnyField) {
  v1::JobSpec other = Valid();
  other.mutable_stages(0)->set_seed(1);
  EXPECT_NE(JobSpecSha256(other), JobSpecSha256(Valid()));
}

TEST(CheckJobSpec, EachRangeIsEnforced) {
  EXPECT_THAT(CheckWith("name=Bad Name"), ElementsAre(Violates("name", "\"Bad Name\"")));
  EXPECT_THAT(CheckWith("stages[0].steps=-5"),
              ElementsAre(Violates("stages[0].steps", "-5 is outside")));
  EXPECT_THAT(CheckWith("stages[0].model.folder=model"),
              ElementsAre(Violates("stages[0].model.folder", "relative path")));
  EXPECT_THAT(CheckWith("stages[0].extend_checkpoint=step-1"),
              ElementsAre(Violates("stages[0].extend_checkpoint", "relative path")));
  EXPECT_THAT(CheckWith("stages[0].kind=sft"),
              ElementsAre(Violates("stages[0].kind", "\"sft\" is not one of cpt")));
  EXPECT_THAT(CheckWith("stages[0].schedule.warmup_steps=100"),
              ElementsAre(Violates("stages[0].schedule.warmup_steps", "[0, 99]")));
  EXPECT_THAT(CheckWith("stages[0].optimizer.beta2=1"),
              ElementsAre(Violates("stages[0].optimizer.beta2", "[0, 1)")));
  EXPECT_THAT(CheckWith("stages[0].optimizer.min_learning_rate=0.1"),
              ElementsAre(Violates("stages[0].optimizer.min_learning_rate", "outside")));
  EXPECT_THAT(CheckWith("resources.devices=8"),
              ElementsAre(Violates("resources.devices", "[1, 1]")));
  EXPECT_THAT(CheckWith("stages[0].data.sequence_length=1"),
              ElementsAre(Violates("stages[0].data.sequence_length", "1 is outside")));
}

TEST(FillDefaults, CountsTheStepsOfRulesFromTheStart) {
  v1::JobSpec spec = Valid();
  spec.mutable_stages(0)->set_steps(100);
  v1::PrecisionRule* rule = spec.mutable_stages(0)->mutable_recipe()->add_rules();
  rule->set_fprop("bf16");
  FillDefaults(&spec);
  EXPECT_EQ(rule->from_step(), 1);
  EXPECT_EQ(rule->until_step(), 0);
  rule->set_from_step(-20);
  rule->set_until_step(-1);
  FillDefaults(&spec);
  EXPECT_EQ(rule->from_step(), 81);
  EXPECT_EQ(rule->until_step(), 100);
  EXPECT_TRUE(CheckJobSpec(spec).empty());
}

TEST(CheckJobSpec, RulesAreCheckedFieldByField) {
  const auto rule = [](const std::string& text) {
    return CheckWith("stages[0].recipe.rules=[" + text + "]");
  };
  EXPECT_TRUE(rule("{modules: [\"*.q_proj\"], fprop: bf16, gradient: e5m2}").empty());
  EXPECT_THAT(rule("{fprop: fp4}"),
              ElementsAre(Violates("stages[0].recipe.rules[0].fprop", "not one of fp8, bf16")));
  EXPECT_THAT(rule("{gradient: e3m4}"),
              ElementsAre(Violates("stages[0].recipe.rules[0].gradient", "not one of e4m3, e5m2")));
  EXPECT_THAT(rule("{modules: [a]}"),
              ElementsAre(Violates("stages[0].recipe.rules[0]", "it changes nothing")));
  EXPECT_THAT(rule("{wgrad: bf16, from_step: 101}"),
              ElementsAre(Violates("stages[0].recipe.rules[0].from_step", "[1, 100]")));
  EXPECT_THAT(rule("{wgrad: bf16, from_step: -101}"),
              ElementsAre(Violates("stages[0].recipe.rules[0].from_step", "-101 is outside")));
  EXPECT_THAT(rule("{wgrad: bf16, from_step: 9, until_step: 8}"),
              ElementsAre(Violates("stages[0].recipe.rules[0].until_step", "[9, 100]")));
  EXPECT_THAT(CheckWith("stages[0].recipe={name: bf16, rules: [{fprop: fp8}]}"),
              ElementsAre(Violates("stages[0].recipe.rules", "every GEMM is BF16")));
  std::string many;
  for (int i = 0; i < 101; ++i) many += "{fprop: bf16}, ";
  EXPECT_THAT(rule(many), ElementsAre(Violates("stages[0].recipe.rules", "101 rules are above")));
}

TEST(CheckJobSpec, AnEmptySpecListsEverythingThatIsRequired) {
  v1::JobSpec spec;
  spec.add_stages();
  FillDefaults(&spec);
  EXPECT_THAT(CheckJobSpec(spec),
              ElementsAre(Violates("name", ""), Violates("output_folder", "required"),
                          Violates("stages[0].kind", ""), Violates("stages[0].steps", "required"),
                          Violates("stages[0].model.folder", "required"),
                          Violates("stages[0].data.files", "at least one"),
                          Violates("stages[0].data.sequence_length", "required"),
                          Violates("stages[0].optimizer.learning_rate", "required")));
}

}  // namespace
}  // namespace octavo
