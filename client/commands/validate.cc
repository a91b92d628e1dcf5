#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "client/commands/commands.h"
#include "client/commands/job_file.h"
#include "client/render/format.h"
#include "client/render/json.h"
#include "client/render/table.h"

namespace octavo::client {
namespace {

std::string RenderPlan(const v1::Plan& plan) {
  Table table({{""}, {"", Align::kRight}});
  const auto bytes = [&](const char* name, int64_t value) {
    table.Add({name, FormatBytes(value)});
  };
  table.Add({"parameters", FormatInteger(plan.parameters())});
  bytes("weights", plan.weights_bytes());
  bytes("gradients", plan.gradients_bytes());
  bytes("optimizer", plan.optimizer_bytes());
  bytes("activations", plan.activations_bytes());
  bytes("workspaces", plan.workspaces_bytes());
  bytes("the backend's own", plan.backend_bytes());
  if (plan.corpus_bytes() > 0) bytes("corpus", plan.corpus_bytes());
  bytes("program", plan.program_bytes());
  bytes("memory in all", plan.total_bytes());
  bytes("one checkpoint", plan.checkpoint_bytes());
  table.Add({"tokens per step", FormatInteger(plan.tokens_per_step())});
  if (plan.train_tokens() > 0) {
    table.Add({"tokens in the corpus", FormatInteger(plan.train_tokens())});
    table.Add({"passes over it", absl::StrFormat("%.2f", plan.epochs())});
  }
  return table.Render();
}

}  // namespace

Outcome Validate(Context& context, const JobFile& file) {
  ASSIGN_OR_RETURN(const LoadedJob loaded, LoadJob(file));
  ASSIGN_OR_RETURN(const v1::ValidateJobResponse checked, CheckJob(context, loaded));
  if (context.json()) {
    context.out() << JsonDocument(checked);
    return checked.violations().empty() ? ExitCode::kOk : ExitCode::kFailed;
  }
  PrintWarnings(context, checked.warnings());
  if (!checked.violations().empty()) {
    PrintViolations(context, file.path, checked.violations());
    return ExitCode::kFailed;
  }
  context.out() << Printable(file.path) << " can be submitted\n";
  if (checked.has_plan()) context.out() << RenderPlan(checked.plan());
  return ExitCode::kOk;
}

}  // namespace octavo::client
