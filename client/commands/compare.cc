#include "base/status.h"
#include "client/commands/commands.h"
#include "client/render/comparison.h"
#include "proto/support/metric_table.h"

namespace octavo::client {
namespace {

absl::StatusOr<ComparedJob> Fetch(Client* client, const std::string& id) {
  ComparedJob compared;
  ASSIGN_OR_RETURN(compared.job, client->GetJob(id));
  ASSIGN_OR_RETURN(compared.losses,
                   client->QueryMetrics(compared.job.id(), {std::string(metric::kLoss)}));
  return compared;
}

}  // namespace

Outcome Compare(Context& context, const CompareOptions& options) {
  ASSIGN_OR_RETURN(Client* const client, context.client());
  ASSIGN_OR_RETURN(const ComparedJob first, Fetch(client, options.first));
  ASSIGN_OR_RETURN(const ComparedJob second, Fetch(client, options.second));
  const Comparison comparison = CompareJobs(first, second);
  context.out() << (context.json() ? ComparisonJson(comparison)
                                   : RenderComparison(context.terminal(), comparison));
  return ExitCode::kOk;
}

}  // namespace octavo::client
