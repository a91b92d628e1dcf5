#include "base/file.h"
#include "base/status.h"
#include "client/commands/commands.h"
#include "client/commands/job_file.h"
#include "client/render/format.h"
#include "client/render/json.h"
#include "client/stream.h"

namespace octavo::client {
namespace {

constexpr int kRequestIdBytes = 16;

}  // namespace

Outcome Submit(Context& context, const SubmitOptions& options) {
  ASSIGN_OR_RETURN(const LoadedJob loaded, LoadJob(options.file));
  if (!options.skip_validation) {
    ASSIGN_OR_RETURN(const v1::ValidateJobResponse checked, CheckJob(context, loaded));
    PrintWarnings(context, checked.warnings());
    if (!checked.violations().empty()) {
      PrintViolations(context, options.file.path, checked.violations());
      return ExitCode::kFailed;
    }
  }
  if (!loaded.violations.empty()) {
    PrintViolations(context, options.file.path,
                    {loaded.violations.begin(), loaded.violations.end()});
    return ExitCode::kFailed;
  }
  ASSIGN_OR_RETURN(Client* const client, context.client());
  v1::SubmitJobRequest request;
  request.set_request_id(RandomHex(kRequestIdBytes));
  *request.mutable_spec() = loaded.spec;
  Interruption never;
  const absl::StatusOr<v1::Job> job = client->SubmitJob(request, &never);
  if (!job.ok()) {
    const v1::Violations violations = ViolationsOf(job.status());
    if (violations.violations().empty()) return job.status();
    PrintViolations(context, options.file.path, violations.violations());
    return ExitCode::kFailed;
  }
  if (context.json()) {
    context.out() << (options.watch ? JsonLine(*job) : JsonDocument(*job));
  } else {
    context.out() << "submitted " << job->id() << " (" << Printable(job->spec().name()) << ")"
                  << (options.watch ? "" : "; follow it by: octavo watch " + job->id()) << "\n";
  }
  context.out().flush();
  return options.watch ? Watch(context, job->id()) : Outcome(ExitCode::kOk);
}

}  // namespace octavo::client
