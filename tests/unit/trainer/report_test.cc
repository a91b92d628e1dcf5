#include "worker/trainer/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "proto/support/metric_table.h"
#include "worker/trainer/failure.h"
#include "worker/trainer/metrics.h"

namespace octavo::trainer {
namespace {

using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(ToJson, UsesFieldNamesAndPlainNumbers) {
  v1::RunReport report;
  report.set_steps(int64_t{1} << 40);
  report.set_final_loss(2.5);
  report.set_weights_sha256("abc");
  report.add_warnings("one");
  report.mutable_exact_match()->set_total(3);
  const auto json = nlohmann::json::parse(ToJson(report));
  EXPECT_EQ(json["steps"], int64_t{1} << 40);
  EXPECT_TRUE(json["steps"].is_number());
  EXPECT_EQ(json["final_loss"], 2.5);
  EXPECT_EQ(json["weights_sha256"], "abc");
  EXPECT_EQ(json["warnings"], nlohmann::json({"one"}));
  EXPECT_EQ(json["exact_match"]["correct"], 0) << "defaults are written";
  EXPECT_FALSE(json.contains("holdout")) << "absent messages are not";
}

TEST(ToJson, WhatIsNoNumberIsNull) {
  v1::RunReport report;
  report.set_final_loss(kNan);
  EXPECT_TRUE(nlohmann::json::parse(ToJson(report))["final_loss"].is_null());
}

TEST(AddFinalReport, HandsOnWhatTheEngineFound) {
  engine::FinalReport from;
  from.training_gemms = {.fp8 = 21, .bf16 = 3};
  from.parameters = 1000;
  from.weights_sha256 = "abc";
  from.warnings = {"careful"};
  from.initial_holdout = {.tokens = 5, .tokens_sha256 = "t", .loss_bf16 = 5.5, .loss_fp8 = 5.6};
  from.holdout = {.tokens = 5, .tokens_sha256 = "t", .loss_bf16 = 3.5, .loss_fp8 = 3.6};
  from.exact_match = {.correct = 1, .total = 2};
  from.nonfinite = {.of_kind = {5, 6, 7, 8},
                    .first_module = "model.norm",
                    .first_kind = engine::NonfiniteKind::kNormRow};
  v1::RunReport report;
  AddFinalReport(from, {.name = "cpu", .device = "D", .matmul = "M", .memory_bytes = 1}, &report);
  EXPECT_EQ(report.fp8_gemms(), 21);
  EXPECT_EQ(report.bf16_gemms(), 3);
  EXPECT_EQ(report.parameters(), 1000);
  EXPECT_EQ(report.weights_sha256(), "abc");
  EXPECT_EQ(report.warnings(0), "careful");
  EXPECT_EQ(report.holdout().loss_bf16(), 3.5);
  EXPECT_EQ(report.holdout().loss_fp8(), 3.6);
  EXPECT_EQ(report.holdout().initial_loss_bf16(), 5.5);
  EXPECT_EQ(report.holdout().initial_loss_fp8(), 5.6);
  EXPECT_EQ(report.exact_match().correct(), 1);
  EXPECT_EQ(report.nonfinite().activations(), 5);
  EXPECT_EQ(report.nonfinite().output_gradients(), 6);
  EXPECT_EQ(report.nonfinite().norm_rows(), 7);
  EXPECT_EQ(report.nonfinite().weights(), 8);
  EXPECT_EQ(report.nonfinite().last(), "norm rows of model.norm");
  EXPECT_EQ(report.backend(), "cpu: D, GEMMs by M");
}

TEST(CompareWithBaseline, OtherTokensAreNotCompared) {
  v1::RunReport report;
  report.mutable_holdout()->set_tokens_sha256("a");
  report.mutable_holdout()->set_loss_bf16(2.02);
  v1::Job baseline;
  baseline.set_id("job-b");
  EXPECT_EQ(CompareWithBaseline(report, baseline), "");
  baseline.mutable_report()->mutable_holdout()->set_tokens_sha256("b");
  EXPECT_THAT(CompareWithBaseline(report, baseline), HasSubstr("not comparable"));
  baseline.mutable_report()->mutable_holdout()->set_tokens_sha256("a");
  baseline.mutable_report()->mutable_holdout()->set_loss_bf16(2.0);
  EXPECT_THAT(CompareWithBaseline(report, baseline), HasSubstr("relative difference +1.000e-02"));
}

double ValueOf(const std::vector<v1::MetricPoint>& points, absl::string_view name) {
  for (const v1::MetricPoint& point : points) {
    if (point.name() == name) return point.value();
  }
  return kNan;
}

TEST(MakeMetricPoints, UsesOnlyNamesOfTheTable) {
  engine::StepReport step;
  step.step = 3;
  step.seconds = 2;
  step.probe = engine::Probe{.loss_fp8 = 2, .loss_bf16 = 1};
  const auto points = MakeMetricPoints(step, absl::UnixEpoch() + absl::Seconds(5));
  EXPECT_EQ(points.size(), 15u);
  for (const v1::MetricPoint& point : points) {
    EXPECT_NE(FindMetric(point.name()), nullptr) << point.name();
    EXPECT_EQ(point.step(), 3);
    EXPECT_EQ(point.time_unix_ms(), 5000);
  }
}

TEST(MakeMetricPoints, ComputesThroughputAndTheProbesRatio) {
  engine::StepReport step;
  step.step_tokens = 100;
  step.seconds = 0.5;
  step.probe = engine::Probe{.loss_fp8 = 2.02, .loss_bf16 = 2.0};
  const auto points = MakeMetricPoints(step, absl::UnixEpoch());
  EXPECT_EQ(ValueOf(points, metric::kTokensPerSecond), 200);
  EXPECT_NEAR(ValueOf(points, metric::kProbeRatio), 0.01, 1e-12);
}

TEST(MakeMetricPoints, LeavesOutWhatIsNotFinite) {
  engine::StepReport step;
  step.loss = kNan;
  step.gradient_norm = 1;
  const auto points = MakeMetricPoints(step, absl::UnixEpoch());
  EXPECT_TRUE(std::isnan(ValueOf(points, metric::kLoss)));
  EXPECT_EQ(ValueOf(points, metric::kGradientNorm), 1);
}

TEST(MakeMetricPoints, CountsEachKindOfValueThatIsNotFinite) {
  engine::StepReport step;
  step.nonfinite.of_kind = {1, 2, 3, 4};
  const auto points = MakeMetricPoints(step, absl::UnixEpoch());
  EXPECT_EQ(ValueOf(points, metric::kNonfiniteActivations), 1);
  EXPECT_EQ(ValueOf(points, metric::kNonfiniteOutputGradients), 2);
  EXPECT_EQ(ValueOf(points, metric::kNonfiniteNormRows), 3);
  EXPECT_EQ(ValueOf(points, metric::kNonfiniteWeights), 4);
}

TEST(DescribeStep, SaysWhyAStepWasNotApplied) {
  engine::StepReport step;
  step.applied = false;
  EXPECT_THAT(DescribeStep(step, 9), HasSubstr("NOT APPLIED: no target token"));
  step.step_tokens = 5;
  EXPECT_THAT(DescribeStep(step, 9), ::testing::EndsWith("NOT APPLIED: not finite"));
  step.nonfinite = {.of_kind = {1, 0, 0, 0},
                    .first_module = "model.layers.1.mlp.down_proj",
                    .first_kind = engine::NonfiniteKind::kActivation};
  EXPECT_THAT(DescribeStep(step, 9),
              ::testing::EndsWith("first in activations of model.layers.1.mlp.down_proj"));
}

TEST(CauseOf, DependsOnWhatWasBeingDone) {
  EXPECT_EQ(CauseOf(absl::NotFoundError(""), Phase::kPrepare), v1::FAILURE_CAUSE_INVALID_INPUT);
  EXPECT_EQ(CauseOf(absl::NotFoundError(""), Phase::kStore), v1::FAILURE_CAUSE_STORAGE);
  EXPECT_EQ(CauseOf(absl::ResourceExhaustedError(""), Phase::kPrepare),
            v1::FAILURE_CAUSE_OUT_OF_MEMORY);
  EXPECT_EQ(CauseOf(absl::ResourceExhaustedError(""), Phase::kStore), v1::FAILURE_CAUSE_STORAGE);
  EXPECT_EQ(CauseOf(absl::InternalError("EFBIG"), Phase::kStore), v1::FAILURE_CAUSE_STORAGE);
  EXPECT_EQ(CauseOf(absl::InternalError(""), Phase::kTrain), v1::FAILURE_CAUSE_INTERNAL);
  EXPECT_EQ(CauseOf(absl::OutOfRangeError(""), Phase::kTrain), v1::FAILURE_CAUSE_NON_FINITE);
  EXPECT_EQ(CauseOf(absl::FailedPreconditionError(""), Phase::kPrepare),
            v1::FAILURE_CAUSE_INVALID_INPUT);
  EXPECT_EQ(CauseOf(absl::DataLossError(""), Phase::kPrepare), v1::FAILURE_CAUSE_STORAGE);
}

TEST(MakeFailure, IsOneLine) {
  EXPECT_EQ(MakeFailure(absl::InternalError("a\nb"), Phase::kTrain).message(), "a b");
}

}  // namespace
}  // namespace octavo::trainer
