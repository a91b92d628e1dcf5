#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/commands/commands.h"
#include "client/render/format.h"
#include "client/render/job_text.h"
#include "client/render/json.h"
#include "client/render/table.h"

namespace octavo::client {
namespace {

// The newest step that is known without asking for metrics.
std::string StepText(const v1::Job& job) {
  const int64_t step =
      job.state() == v1::JOB_STATE_SUCCEEDED ? job.report().steps() : job.checkpoint().step();
  return absl::StrCat(step, "/", StepsOf(job));
}

std::string NoteOf(const v1::Job& job) {
  if (job.state() == v1::JOB_STATE_SUCCEEDED) {
    return "loss " + FormatLoss(job.report().final_loss());
  }
  if (job.state() == v1::JOB_STATE_FAILED) return FailureText(job.failure());
  if (job.state() == v1::JOB_STATE_PENDING) return Printable(job.pending_reason());
  if (job.attempts().empty()) return "";
  return "on " + Printable(job.attempts(job.attempts_size() - 1).worker_id());
}

}  // namespace

Outcome Jobs(Context& context, const JobsOptions& options) {
  v1::ListJobsRequest request;
  for (const std::string& name : options.states) request.add_states(StateOf(name));
  ASSIGN_OR_RETURN(Client* const client, context.client());
  ASSIGN_OR_RETURN(const v1::ListJobsResponse response, client->ListJobs(request, options.limit));
  if (context.json()) {
    context.out() << JsonDocument(response);
    return ExitCode::kOk;
  }
  if (response.jobs().empty()) {
    context.out() << "no jobs\n";
    return ExitCode::kOk;
  }
  Table table({{"JOB"},
               {"NAME"},
               {"STATE"},
               {"RECIPE"},
               {"SAVED", Align::kRight},
               {"SUBMITTED"},
               {"NOTE"}});
  for (const v1::Job& job : response.jobs()) {
    table.Add({job.id(), Printable(job.spec().name()), StateName(context.terminal(), job.state()),
               RecipeOf(job), StepText(job), FormatTime(job.submit_time(), context.terminal().zone),
               NoteOf(job)});
  }
  context.out() << table.Render();
  if (!response.next_page_token().empty()) {
    context.error() << "octavo: the newest " << response.jobs_size()
                    << " jobs are shown; write --limit to see more\n";
  }
  return ExitCode::kOk;
}

}  // namespace octavo::client
