#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "client/commands/commands.h"
#include "client/render/json.h"
#include "client/render/table.h"
#include "client/stream.h"
#include "proto/support/metric_table.h"

namespace octavo::client {
namespace {

using Points = google::protobuf::RepeatedPtrField<v1::MetricPoint>;

// A row per step, a column per metric that has a value anywhere, in the order of the metric table.
std::string RenderPoints(const Points& points, int64_t last) {
  std::map<int64_t, std::map<std::string, double>> steps;
  for (const v1::MetricPoint& point : points) steps[point.step()][point.name()] = point.value();
  while (last > 0 && static_cast<int64_t>(steps.size()) > last) steps.erase(steps.begin());

  std::vector<Table::Column> columns = {{"step", Align::kRight}};
  std::vector<std::string> names;
  for (const MetricRow& row : MetricTable()) {
    const std::string name(row.name);
    if (std::any_of(steps.begin(), steps.end(),
                    [&](auto& s) { return s.second.count(name) > 0; })) {
      names.push_back(name);
      columns.push_back({name, Align::kRight});
    }
  }
  Table table(columns);
  for (const auto& [step, values] : steps) {
    std::vector<std::string> cells = {absl::StrCat(step)};
    for (const std::string& name : names) {
      const auto found = values.find(name);
      cells.push_back(found == values.end() ? "-" : absl::StrFormat("%.6g", found->second));
    }
    table.Add(std::move(cells));
  }
  return table.Render();
}

// A line per point.
Outcome Follow(Context& context, Client* client, v1::StreamMetricsRequest request) {
  const Reconnect reconnect = {
      .patience = context.patience(),
      .notice = [&](const std::string& text) { context.error() << "octavo: " << text << "\n"; }};
  Interruption never;  // Ctrl-C ends the process; nothing is left to be put in order
  RETURN_IF_ERROR(FollowStream<v1::MetricPoints>(
      client, reconnect, &never,
      [&](grpc::ClientContext* call) { return client->metrics().StreamMetrics(call, request); },
      [&](const v1::MetricPoints& points) {
        for (const v1::MetricPoint& point : points.points()) {
          context.out() << (context.json() ? JsonLine(point)
                                           : absl::StrFormat("%d %s %.9g\n", point.step(),
                                                             point.name(), point.value()));
          request.set_after_step(std::max<int64_t>(point.step() - 1, 0));
        }
        context.out().flush();
      }));
  return ExitCode::kOk;
}

}  // namespace

Outcome Metrics(Context& context, const MetricsOptions& options) {
  ASSIGN_OR_RETURN(Client* const client, context.client());
  ASSIGN_OR_RETURN(const std::string job, client->ResolveJob(options.job));
  if (options.follow) {
    v1::StreamMetricsRequest request;
    request.set_job_id(job);
    for (const std::string& name : options.names) request.add_names(name);
    return Follow(context, client, std::move(request));
  }
  ASSIGN_OR_RETURN(const v1::QueryMetricsResponse response,
                   client->QueryMetrics(job, options.names));
  if (context.json()) {
    context.out() << JsonDocument(response);
  } else if (response.points().empty()) {
    context.out() << job << " has no such metrics yet\n";
  } else {
    context.out() << RenderPoints(response.points(), options.last);
  }
  return ExitCode::kOk;
}

}  // namespace octavo::client
