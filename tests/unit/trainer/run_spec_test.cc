#include "worker/trainer/run_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/support/job_spec.h"

namespace octavo::trainer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The least that a spec needs; every other field has its default.
v1::JobSpec MinimalSpec() {
  v1::JobSpec spec;
  spec.set_name("a-job");
  spec.set_output_folder("/out");
  v1::Stage* stage = spec.add_stages();
  stage->set_kind("cpt");
  stage->set_steps(100);
  stage->mutable_model()->set_folder("/model");
  stage->mutable_data()->add_files("/data/a.txt");
  stage->mutable_data()->set_sequence_length(64);
  stage->mutable_optimizer()->set_learning_rate(1e-3);
  FillDefaults(&spec);
  return spec;
}

TEST(MakeRunSpec, DefaultsBecomeThoseOfTheSpec) {
  const auto run = MakeRunSpec(MinimalSpec());
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->model.folder, "/model");
  EXPECT_EQ(run->model.initialisation, engine::ModelSpec::Initialisation::kWeights);
  EXPECT_THAT(run->data.files, ElementsAre("/data/a.txt"));
  EXPECT_EQ(run->data.text_field, "text");
  EXPECT_EQ(run->data.tokenizer, engine::DataSpec::TokenizerKind::kFolder);
  EXPECT_EQ(run->data.sequence_length, 64);
  EXPECT_TRUE(run->data.isolate_documents);
  EXPECT_EQ(run->data.holdout_fraction, 0.01);
  EXPECT_FALSE(run->data.skip_bad_rows);
  EXPECT_EQ(run->recipe.precision, engine::RecipeSpec::Precision::kFp8);
  EXPECT_EQ(run->optimizer.learning_rate, 1e-3);
  EXPECT_DOUBLE_EQ(run->optimizer.min_learning_rate, 1e-4);
  EXPECT_EQ(run->optimizer.beta1, 0.9);
  EXPECT_EQ(run->optimizer.beta2, 0.95);
  EXPECT_EQ(run->optimizer.epsilon, 1e-8);
  EXPECT_EQ(run->optimizer.weight_decay, 0.1);
  EXPECT_EQ(run->optimizer.clip_norm, 1.0);
  EXPECT_EQ(run->schedule.kind, engine::ScheduleSpec::Kind::kWsd);
  EXPECT_EQ(run->schedule.warmup_steps, 0);
  EXPECT_EQ(run->schedule.decay_steps, 10);
  EXPECT_EQ(run->evaluation.holdout_tokens, 16384);
  EXPECT_EQ(run->micro_batch, 1);
  EXPECT_EQ(run->gradient_accumulation, 1);
  EXPECT_EQ(run->steps, 100);
  EXPECT_EQ(run->seed, 0u);
  EXPECT_EQ(run->probe_every_steps, 10);
}

TEST(MakeRunSpec, EveryFieldOfModelAndDataIsHandedOn) {
  v1::JobSpec spec = MinimalSpec();
  v1::Stage* stage = spec.mutable_stages(0);
  stage->mutable_model()->set_initialisation("random");
  v1::DataSource* data = stage->mutable_data();
  data->set_text_field("body");
  data->set_tokenizer("byte");
  data->set_isolate_documents(false);
  data->add_holdout_files("/data/held.txt");
  data->set_holdout_fraction(0.25);
  data->set_on_bad_row("skip");
  data->set_document_separator("\n");
  const auto run = MakeRunSpec(spec);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->model.initialisation, engine::ModelSpec::Initialisation::kRandom);
  EXPECT_EQ(run->data.text_field, "body");
  EXPECT_EQ(run->data.tokenizer, engine::DataSpec::TokenizerKind::kByte);
  EXPECT_FALSE(run->data.isolate_documents);
  EXPECT_THAT(run->data.holdout_files, ElementsAre("/data/held.txt"));
  EXPECT_EQ(run->data.holdout_fraction, 0.25);
  EXPECT_TRUE(run->data.skip_bad_rows);
  EXPECT_EQ(run->data.document_separator, "\n");
}

TEST(MakeRunSpec, EveryFieldOfRecipeAndOptimizerIsHandedOn) {
  v1::JobSpec spec = MinimalSpec();
  v1::Stage* stage = spec.mutable_stages(0);
  stage->mutable_recipe()->add_keep_bf16("model.layers.0.*");
  v1::PrecisionRule* rule = stage->mutable_recipe()->add_rules();
  rule->add_modules("*.q_proj");
  rule->set_fprop("bf16");
  rule->set_dgrad("fp8");
  rule->set_gradient("e5m2");
  rule->set_from_step(3);
  rule->set_until_step(9);
  v1::Optimizer* optimizer = stage->mutable_optimizer();
  optimizer->set_min_learning_rate(2e-5);
  optimizer->set_beta1(0.8);
  optimizer->set_beta2(0.99);
  optimizer->set_epsilon(1e-6);
  optimizer->set_weight_decay(0.0);
  optimizer->set_clip_norm(0.5);
  const auto run = MakeRunSpec(spec);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_THAT(run->recipe.keep_bf16, ElementsAre("model.layers.0.*"));
  ASSERT_EQ(run->recipe.rules.size(), 1u);
  const engine::PrecisionRule& planned = run->recipe.rules[0];
  EXPECT_THAT(planned.modules, ElementsAre("*.q_proj"));
  EXPECT_EQ(planned.fprop, engine::GemmPrecision::kBf16);
  EXPECT_EQ(planned.dgrad, engine::GemmPrecision::kFp8);
  EXPECT_FALSE(planned.wgrad.has_value());
  EXPECT_EQ(planned.gradient, kernels::Element::kE5M2);
  EXPECT_EQ(planned.from_step, 3);
  EXPECT_EQ(planned.until_step, 9);
  EXPECT_EQ(run->optimizer.min_learning_rate, 2e-5);
  EXPECT_EQ(run->optimizer.beta1, 0.8);
  EXPECT_EQ(run->optimizer.beta2, 0.99);
  EXPECT_EQ(run->optimizer.epsilon, 1e-6);
  EXPECT_EQ(run->optimizer.weight_decay, 0.0);
  EXPECT_EQ(run->optimizer.clip_norm, 0.5);
}

TEST(MakeRunSpec, EveryFieldOfTheRestIsHandedOn) {
  v1::JobSpec spec = MinimalSpec();
  v1::Stage* stage = spec.mutable_stages(0);
  stage->mutable_schedule()->set_warmup_steps(5);
  stage->set_extend_checkpoint("/jobs/job-a/checkpoints/step-00000100.epoch-1");
  stage->mutable_schedule()->set_decay_steps(20);
  stage->mutable_batch()->set_micro_batch(4);
  stage->mutable_batch()->set_gradient_accumulation(3);
  stage->mutable_divergence()->set_probe_every_steps(7);
  stage->mutable_evaluation()->set_holdout_tokens(99);
  stage->mutable_evaluation()->set_exact_match_file("/data/questions.jsonl");
  stage->mutable_evaluation()->set_exact_match_limit(11);
  stage->mutable_evaluation()->set_exact_match_max_new_tokens(13);
  stage->set_seed(42);
  const auto run = MakeRunSpec(spec);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->schedule.warmup_steps, 5);
  EXPECT_EQ(run->extend_checkpoint, "/jobs/job-a/checkpoints/step-00000100.epoch-1");
  EXPECT_EQ(run->schedule.decay_steps, 20);
  EXPECT_EQ(run->micro_batch, 4);
  EXPECT_EQ(run->gradient_accumulation, 3);
  EXPECT_EQ(run->probe_every_steps, 7);
  EXPECT_EQ(run->evaluation.holdout_tokens, 99);
  EXPECT_EQ(run->evaluation.exact_match_file, "/data/questions.jsonl");
  EXPECT_EQ(run->evaluation.exact_match_limit, 11);
  EXPECT_EQ(run->evaluation.exact_match_max_new_tokens, 13);
  EXPECT_EQ(run->seed, 42u);
}

TEST(MakeRunSpec, NamesOfChoicesBecomeChoices) {
  v1::JobSpec spec = MinimalSpec();
  spec.mutable_stages(0)->mutable_recipe()->set_name("bf16");
  spec.mutable_stages(0)->mutable_schedule()->clear_decay_steps();
  spec.mutable_stages(0)->mutable_schedule()->set_kind("cosine");
  EXPECT_EQ(MakeRunSpec(spec)->recipe.precision, engine::RecipeSpec::Precision::kBf16);
  EXPECT_EQ(MakeRunSpec(spec)->schedule.kind, engine::ScheduleSpec::Kind::kCosine);
  spec.mutable_stages(0)->mutable_schedule()->set_kind("constant");
  EXPECT_EQ(MakeRunSpec(spec)->schedule.kind, engine::ScheduleSpec::Kind::kConstant);
}

TEST(MakeRunSpec, ASpecThatThisVersionDoesNotKnowIsRefused) {
  v1::JobSpec spec = MinimalSpec();
  spec.mutable_stages(0)->mutable_recipe()->set_name("fp4");
  const auto run = MakeRunSpec(spec);
  EXPECT_EQ(run.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(run.status().message()), HasSubstr("stages[0].recipe.name"));
}

}  // namespace
}  // namespace octavo::trainer
