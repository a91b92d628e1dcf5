#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "client/commands/commands.h"
#include "client/render/format.h"
#include "client/render/job_text.h"
#include "client/render/json.h"
#include "client/render/table.h"

namespace octavo::client {
namespace {

void AddHoldout(const v1::Holdout& holdout, Table* table) {
  if (holdout.tokens() == 0) return;
  table->Add({"held-out tokens", FormatInteger(holdout.tokens())});
  std::string bf16 = FormatLoss(holdout.loss_bf16());
  if (holdout.has_initial_loss_bf16()) {
    absl::StrAppend(&bf16, " (", FormatLoss(holdout.initial_loss_bf16()), " before training)");
  }
  table->Add({"held-out loss in BF16", bf16});
  if (!holdout.has_loss_fp8()) return;
  std::string fp8 = FormatLoss(holdout.loss_fp8());
  if (holdout.has_initial_loss_fp8()) {
    absl::StrAppend(&fp8, " (", FormatLoss(holdout.initial_loss_fp8()), " before training)");
  }
  table->Add({"held-out loss in FP8", fp8});
}

void AddReport(const v1::RunReport& report, Table* table) {
  table->Add({"parameters", FormatInteger(report.parameters())});
  table->Add(
      {"steps", absl::StrCat(report.steps(), ", ", FormatInteger(report.tokens()), " tokens")});
  table->Add({"final loss", FormatLoss(report.final_loss())});
  AddHoldout(report.holdout(), table);
  if (report.exact_match().total() > 0) {
    table->Add({"exact match", absl::StrCat(report.exact_match().correct(), " of ",
                                            report.exact_match().total())});
  }
  table->Add({"speed", FormatCount(report.tokens_per_second()) + " tokens/s"});
  table->Add({"peak memory", FormatBytes(report.peak_memory_bytes())});
  table->Add({"GEMMs", absl::StrCat(FormatInteger(report.fp8_gemms()), " in FP8, ",
                                    FormatInteger(report.bf16_gemms()), " in BF16")});
  if (report.nonfinite_steps() > 0) {
    const std::string& last = report.nonfinite().last();
    table->Add(
        {"steps not applied", absl::StrCat(report.nonfinite_steps(), ", not finite",
                                           last.empty() ? "" : ", last in ", Printable(last))});
  }
  table->Add({"backend", Printable(report.backend())});
  table->Add({"checkpoint", Printable(report.checkpoint_folder())});
  if (!report.export_folder().empty()) table->Add({"export", Printable(report.export_folder())});
  for (const std::string& warning : report.warnings()) {
    table->Add({"warning", Printable(warning)});
  }
}

std::string RenderAttempts(const v1::Job& job, const absl::TimeZone& zone) {
  if (job.attempts().empty()) return "";
  Table table({{"ATTEMPT", Align::kRight},
               {"WORKER"},
               {"FROM STEP", Align::kRight},
               {"STARTED"},
               {"ENDED"},
               {"FAILURE"}});
  for (const v1::Attempt& attempt : job.attempts()) {
    table.Add({absl::StrCat(attempt.epoch()), Printable(attempt.worker_id()),
               absl::StrCat(attempt.start_step()), FormatTime(attempt.start_time(), zone),
               FormatTime(attempt.end_time(), zone),
               attempt.has_failure() ? FailureText(attempt.failure()) : ""});
  }
  return "\n" + table.Render();
}

std::string RenderJob(const Terminal& terminal, const v1::Job& job) {
  Table table({{""}, {""}});
  table.Add({"job", job.id()});
  table.Add({"name", Printable(job.spec().name())});
  table.Add({"state", StateName(terminal, job.state())});
  if (!job.pending_reason().empty()) table.Add({"waits", Printable(job.pending_reason())});
  if (job.has_failure()) table.Add({"failure", FailureText(job.failure())});
  table.Add({"recipe", RecipeOf(job)});
  if (!job.spec().stages().empty()) {
    table.Add({"model", Printable(job.spec().stages(0).model().folder())});
    table.Add({"planned steps", absl::StrCat(StepsOf(job))});
  }
  table.Add({"submitted", FormatTime(job.submit_time(), terminal.zone)});
  table.Add({"started", FormatTime(job.start_time(), terminal.zone)});
  table.Add({"ended", FormatTime(job.end_time(), terminal.zone)});
  if (job.memory_bytes() > 0) table.Add({"reserved memory", FormatBytes(job.memory_bytes())});
  if (job.has_checkpoint() && !job.has_report()) {
    table.Add({"checkpoint", absl::StrCat("step ", job.checkpoint().step(), ", ",
                                          Printable(job.checkpoint().folder()))});
  }
  if (job.has_report()) AddReport(job.report(), &table);
  return table.Render() + RenderAttempts(job, terminal.zone);
}

}  // namespace

Outcome Show(Context& context, const std::string& job) {
  ASSIGN_OR_RETURN(Client* const client, context.client());
  ASSIGN_OR_RETURN(const v1::Job found, client->GetJob(job));
  context.out() << (context.json() ? JsonDocument(found) : RenderJob(context.terminal(), found));
  return ExitCode::kOk;
}

}  // namespace octavo::client
