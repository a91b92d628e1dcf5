#include "base/status.h"
#include "client/commands/commands.h"
#include "client/render/job_text.h"
#include "client/render/json.h"

namespace octavo::client {

Outcome Cancel(Context& context, const std::string& job) {
  ASSIGN_OR_RETURN(Client* const client, context.client());
  ASSIGN_OR_RETURN(const v1::Job cancelled, client->CancelJob(job));
  if (context.json()) {
    context.out() << JsonDocument(cancelled);
  } else if (cancelled.state() == v1::JOB_STATE_CANCELLED) {
    context.out() << cancelled.id() << " is cancelled\n";
  } else {
    context.out() << cancelled.id()
                  << " is being cancelled: its trainer is told to stop; follow it by: octavo watch "
                  << cancelled.id() << "\n";
  }
  return ExitCode::kOk;
}

}  // namespace octavo::client
