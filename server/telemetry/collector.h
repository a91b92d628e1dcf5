// Prometheus' view of the coordinator, rendered from a snapshot on every scrape: what is not in the
// snapshot has no series.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "prometheus/collectable.h"
#include "prometheus/metric_family.h"
#include "server/telemetry/snapshot.h"

namespace octavo::telemetry {

// Names, units and help texts follow https://prometheus.io/docs/practices/naming.
std::vector<prometheus::MetricFamily> Render(const Snapshot& snapshot, const std::string& version);

class Collector final : public prometheus::Collectable {
 public:
  using Take = std::function<Snapshot()>;
  Collector(Take take, std::string version)
      : take_(std::move(take)), version_(std::move(version)) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  Take take_;
  std::string version_;
};

}  // namespace octavo::telemetry
