#include "client/render/job_text.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "client/render/format.h"

namespace octavo::client {
namespace {

std::string PlainState(v1::JobState state) {
  return absl::AsciiStrToLower(absl::StripPrefix(v1::JobState_Name(state), "JOB_STATE_"));
}

Color ColorOf(v1::JobState state) {
  switch (state) {
    case v1::JOB_STATE_SUCCEEDED:
      return Color::kGreen;
    case v1::JOB_STATE_FAILED:
      return Color::kRed;
    case v1::JOB_STATE_RUNNING:
      return Color::kBlue;
    case v1::JOB_STATE_CANCELLING:
    case v1::JOB_STATE_CANCELLED:
      return Color::kYellow;
    default:
      return Color::kGray;
  }
}

std::string DescribeAttempt(const v1::Attempt& attempt) {
  return absl::StrCat("running on worker ", Printable(attempt.worker_id()), ", attempt ",
                      attempt.epoch(),
                      attempt.start_step() > 0
                          ? absl::StrCat(", from the checkpoint of step ", attempt.start_step())
                          : "");
}

}  // namespace

std::string StateName(const Terminal& terminal, v1::JobState state) {
  return Paint(terminal, ColorOf(state), PlainState(state));
}

v1::JobState StateOf(absl::string_view name) {
  v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
  v1::JobState_Parse(absl::StrCat("JOB_STATE_", absl::AsciiStrToUpper(name)), &state);
  return state;
}

std::vector<std::string> StateNames() {
  std::vector<std::string> names;
  for (int state = v1::JOB_STATE_PENDING; state <= v1::JobState_MAX; ++state) {
    names.push_back(PlainState(static_cast<v1::JobState>(state)));
  }
  return names;
}

std::string FailureText(const v1::Failure& failure) {
  const std::string cause = absl::AsciiStrToLower(
      absl::StripPrefix(v1::FailureCause_Name(failure.cause()), "FAILURE_CAUSE_"));
  return absl::StrCat(absl::StrReplaceAll(cause, {{"_", " "}}), ": ", Printable(failure.message()));
}

std::string RecipeOf(const v1::Job& job) {
  if (job.spec().stages().empty()) return "-";
  return Printable(job.spec().stages(0).recipe().name());
}

int64_t StepsOf(const v1::Job& job) {
  return job.spec().stages().empty() ? 0 : job.spec().stages(0).steps();
}

std::vector<std::string> DescribeChange(const v1::Job* before, const v1::Job& after) {
  static const v1::Job kNothing;
  const v1::Job& old = before == nullptr ? kNothing : *before;
  std::vector<std::string> lines;
  for (int i = 0; i < after.attempts_size(); ++i) {
    const v1::Attempt& attempt = after.attempts(i);
    const bool known = i < old.attempts_size();
    const bool failed = attempt.has_failure();
    if (!known && (!failed || before != nullptr)) lines.push_back(DescribeAttempt(attempt));
    if (failed && !(known && old.attempts(i).has_failure())) {
      lines.push_back(
          absl::StrCat("attempt ", attempt.epoch(), " ended: ", FailureText(attempt.failure())));
    }
  }
  if (after.checkpoint().step() > old.checkpoint().step()) {
    lines.push_back(absl::StrCat("checkpoint of step ", after.checkpoint().step()));
  }
  if (after.state() == v1::JOB_STATE_PENDING && after.pending_reason() != old.pending_reason()) {
    lines.push_back("pending: " + Printable(after.pending_reason()));
  }
  if (after.state() == v1::JOB_STATE_CANCELLING && old.state() != after.state()) {
    lines.push_back("cancelling: waits for the trainer to stop");
  }
  return lines;
}

std::string DescribeEnd(const v1::Job& job) {
  const std::string spent = FormatSpan(ToTime(job.end_time()) - ToTime(job.start_time()));
  switch (job.state()) {
    case v1::JOB_STATE_SUCCEEDED: {
      const v1::RunReport& report = job.report();
      std::string line = absl::StrCat(job.id(), " succeeded: ", report.steps(), " steps in ", spent,
                                      ", final loss ", FormatLoss(report.final_loss()));
      if (report.has_holdout() && report.holdout().tokens() > 0) {
        absl::StrAppend(&line, ", held-out loss ", FormatLoss(report.holdout().loss_bf16()));
      }
      if (!report.export_folder().empty()) {
        absl::StrAppend(&line, "; exported to ", Printable(report.export_folder()));
      }
      return line;
    }
    case v1::JOB_STATE_FAILED:
      return absl::StrCat(job.id(), " failed: ", FailureText(job.failure()));
    case v1::JOB_STATE_CANCELLED:
      return absl::StrCat(job.id(), " was cancelled");
    default:
      return absl::StrCat(job.id(), " is ", PlainState(job.state()));
  }
}

}  // namespace octavo::client
