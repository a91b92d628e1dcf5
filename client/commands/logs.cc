#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/commands/commands.h"
#include "client/render/format.h"
#include "client/render/json.h"
#include "client/stream.h"

namespace octavo::client {

Outcome Logs(Context& context, const LogsOptions& options) {
  ASSIGN_OR_RETURN(Client* const client, context.client());
  v1::TailLogsRequest request;
  ASSIGN_OR_RETURN(*request.mutable_job_id(), client->ResolveJob(options.job));
  request.set_follow(options.follow);
  request.set_offset(options.tail ? -*options.tail : options.offset);
  if (options.tail && *options.tail == 0) {
    return absl::InvalidArgumentError("--tail 0 asks for no line; write 1 or more");
  }
  const Reconnect reconnect = {
      .patience = context.patience(),
      .notice = [&](const std::string& text) { context.error() << "octavo: " << text << "\n"; }};
  Interruption never;  // Ctrl-C ends the process; nothing is left to be put in order
  RETURN_IF_ERROR(FollowStream<v1::LogLines>(
      client, reconnect, &never,
      [&](grpc::ClientContext* call) { return client->logs().TailLogs(call, request); },
      [&](const v1::LogLines& lines) {
        for (const v1::LogLine& line : lines.lines()) {
          context.out() << (context.json() ? JsonLine(line) : Printable(line.text()) + "\n");
          request.set_offset(line.offset() + 1);
        }
        context.out().flush();
      }));
  return ExitCode::kOk;
}

}  // namespace octavo::client
