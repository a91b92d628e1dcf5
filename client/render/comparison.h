// Two jobs side by side: what FP8 cost and what it saved. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/render/lag.h"
#include "client/render/plot.h"
#include "client/render/terminal.h"
#include "octavo/v1/job.pb.h"
#include "octavo/v1/metric.pb.h"

namespace octavo::client {

// A ratio (loss - reference) / reference, or why there is none.
struct Ratio {
  std::optional<double> value;
  std::string reason;  // of a missing value
};

struct Comparison {
  v1::Job reference;
  v1::Job candidate;
  // Loss by step of `train/loss`; the newest value of a repeated step.
  std::vector<Point> reference_losses;
  std::vector<Point> candidate_losses;
  std::vector<Point> gaps;  // in percent of the reference, at the steps that both have

  // Where one job learnt suddenly and the other later or not yet: gaps then say when, not what FP8
  // costs. Where one has not learnt yet, final_loss and training have no value.
  std::optional<Lag> lag;

  Ratio final_loss;
  Ratio arithmetic;  // FP8 against BF16 forward of the candidate's own final weights
  Ratio training;    // the candidate's against the reference's weights, both forward in BF16
  // Spec fields that differ beside name and recipe, "path: reference's -> candidate's": what else
  // than the recipe may explain a gap.
  std::vector<std::string> differences;
};

// The reference is the job of recipe "bf16" where only one has it, else `first`.
struct ComparedJob {
  v1::Job job;
  v1::QueryMetricsResponse losses;
};
Comparison CompareJobs(const ComparedJob& first, const ComparedJob& second);

std::string RenderComparison(const Terminal& terminal, const Comparison& comparison);
// The same as a JSON document.
std::string ComparisonJson(const Comparison& comparison);

}  // namespace octavo::client
