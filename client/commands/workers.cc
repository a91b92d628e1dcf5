#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "client/commands/commands.h"
#include "client/render/format.h"
#include "client/render/json.h"
#include "client/render/table.h"

namespace octavo::client {
namespace {

std::string StateText(const Terminal& terminal, v1::WorkerState state) {
  const std::string name =
      absl::AsciiStrToLower(absl::StripPrefix(v1::WorkerState_Name(state), "WORKER_STATE_"));
  return Paint(terminal, state == v1::WORKER_STATE_CONNECTED ? Color::kGreen : Color::kRed, name);
}

std::string DevicesText(const v1::Worker& worker) {
  return absl::StrJoin(worker.devices(), ", ", [](std::string* out, const v1::Device& device) {
    absl::StrAppend(out, Printable(device.kind()), " ", device.index(), " ",
                    FormatBytes(device.memory_bytes()), " (", Printable(device.name()), ")");
  });
}

}  // namespace

Outcome Workers(Context& context) {
  ASSIGN_OR_RETURN(Client* const client, context.client());
  ASSIGN_OR_RETURN(const v1::ListWorkersResponse response, client->ListWorkers());
  if (context.json()) {
    context.out() << JsonDocument(response);
    return ExitCode::kOk;
  }
  if (response.workers().empty()) {
    context.out() << "no workers; start one by: octavo-worker --server " << client->server()
                  << "\n";
    return ExitCode::kOk;
  }
  Table table({{"WORKER"}, {"STATE"}, {"HOST"}, {"HEARD"}, {"RUNS"}, {"DEVICES"}});
  for (const v1::Worker& worker : response.workers()) {
    table.Add({Printable(worker.id()), StateText(context.terminal(), worker.state()),
               Printable(worker.address()),
               FormatTime(worker.last_heartbeat_time(), context.terminal().zone),
               worker.attempt_ids().empty() ? "-" : absl::StrJoin(worker.attempt_ids(), " "),
               DevicesText(worker)});
  }
  context.out() << table.Render();
  return ExitCode::kOk;
}

}  // namespace octavo::client
