#include "client/render/comparison.h"

#include <google/protobuf/util/message_differencer.h>

#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/render/format.h"
#include "client/render/job_text.h"

namespace octavo::client {
namespace {

std::vector<Point> LossCurve(const v1::QueryMetricsResponse& response) {
  std::map<int64_t, double> by_step;
  for (const v1::MetricPoint& point : response.points()) by_step[point.step()] = point.value();
  std::vector<Point> curve;
  for (const auto& [step, loss] : by_step) curve.push_back({static_cast<double>(step), loss});
  return curve;
}

std::vector<Point> GapCurve(const std::vector<Point>& reference,
                            const std::vector<Point>& candidate) {
  std::map<double, double> by_step;
  for (const Point& point : reference) by_step[point.x] = point.y;
  std::vector<Point> gaps;
  for (const Point& point : candidate) {
    const auto found = by_step.find(point.x);
    if (found == by_step.end() || found->second == 0) continue;
    gaps.push_back({point.x, 100 * (point.y - found->second) / found->second});
  }
  return gaps;
}

Ratio Against(double loss, double reference) {
  if (!std::isfinite(loss) || !std::isfinite(reference) || reference == 0) {
    return {std::nullopt, absl::StrCat("the losses ", FormatLoss(loss), " and ",
                                       FormatLoss(reference), " have no ratio")};
  }
  return {(loss - reference) / reference, ""};
}

Ratio Missing(std::string reason) { return {std::nullopt, std::move(reason)}; }

bool HasHoldout(const v1::Job& job) {
  return job.report().has_holdout() && job.report().holdout().tokens() > 0;
}

std::string NotFinished(const v1::Job& job) { return absl::StrCat(job.id(), " has no report yet"); }

Ratio FinalLoss(const Comparison& comparison) {
  for (const v1::Job* job : {&comparison.reference, &comparison.candidate}) {
    if (!job->has_report()) return Missing(NotFinished(*job));
  }
  return Against(comparison.candidate.report().final_loss(),
                 comparison.reference.report().final_loss());
}

Ratio ArithmeticNow(const v1::Job& job) {
  if (RecipeOf(job) != "fp8") return Missing(job.id() + " is not an FP8 job");
  if (!job.has_report()) return Missing(NotFinished(job));
  const v1::Holdout& holdout = job.report().holdout();
  if (!HasHoldout(job) || !holdout.has_loss_fp8()) {
    return Missing(job.id() + " scored no held-out tokens");
  }
  return Against(holdout.loss_fp8(), holdout.loss_bf16());
}

Ratio TrainingCost(const v1::Job& reference, const v1::Job& candidate) {
  for (const v1::Job* job : {&reference, &candidate}) {
    if (!job->has_report()) return Missing(NotFinished(*job));
    if (!HasHoldout(*job)) return Missing(job->id() + " scored no held-out tokens");
  }
  const v1::Holdout& a = reference.report().holdout();
  const v1::Holdout& b = candidate.report().holdout();
  if (a.tokens_sha256().empty() || a.tokens_sha256() != b.tokens_sha256()) {
    return Missing("not comparable: the jobs scored different held-out tokens");
  }
  return Against(b.loss_bf16(), a.loss_bf16());
}

// The job that has not fallen yet; null where both have, or where there is no such fall.
const v1::Job* NotLearntYet(const Comparison& comparison) {
  if (!comparison.lag) return nullptr;
  if (!comparison.lag->candidate_step) return &comparison.candidate;
  return comparison.lag->reference_step ? nullptr : &comparison.reference;
}

// "modified: stages[0].steps: 100 -> 200" of protobuf's report, without what is expected to differ.
std::vector<std::string> Differences(v1::JobSpec reference, v1::JobSpec candidate) {
  for (v1::JobSpec* spec : {&reference, &candidate}) {
    spec->clear_name();
    spec->clear_output_folder();
    spec->clear_priority();
    for (v1::Stage& stage : *spec->mutable_stages()) {
      stage.clear_recipe();
      stage.clear_divergence();
      stage.clear_checkpoint();
    }
  }
  std::string report;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&report);
  differencer.Compare(reference, candidate);
  std::vector<std::string> lines;
  for (absl::string_view line : absl::StrSplit(report, '\n', absl::SkipEmpty())) {
    lines.push_back(Printable(absl::StripPrefix(line, "modified: ")));
  }
  return lines;
}

}  // namespace

Comparison CompareJobs(const ComparedJob& first, const ComparedJob& second) {
  const bool swap = RecipeOf(first.job) != "bf16" && RecipeOf(second.job) == "bf16";
  const ComparedJob& reference = swap ? second : first;
  const ComparedJob& candidate = swap ? first : second;
  Comparison result = {.reference = reference.job,
                       .candidate = candidate.job,
                       .reference_losses = LossCurve(reference.losses),
                       .candidate_losses = LossCurve(candidate.losses),
                       .gaps = {},
                       .lag = {},
                       .final_loss = {},
                       .arithmetic = ArithmeticNow(candidate.job),
                       .training = TrainingCost(reference.job, candidate.job),
                       .differences = Differences(reference.job.spec(), candidate.job.spec())};
  result.gaps = GapCurve(result.reference_losses, result.candidate_losses);
  result.lag = FindLag(result.reference_losses, result.candidate_losses);
  result.final_loss = FinalLoss(result);
  if (const v1::Job* const late = NotLearntYet(result); late != nullptr) {
    for (Ratio* const ratio : {&result.final_loss, &result.training}) {
      if (ratio->value) *ratio = Missing(late->id() + " has not learnt yet what the other has");
    }
  }
  return result;
}

}  // namespace octavo::client
