#include "server/telemetry/collector.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/support/metric_table.h"

namespace octavo::telemetry {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

MetricFamily Family(absl::string_view name, absl::string_view help, MetricType type) {
  return {std::string(name), std::string(help), type, {}};
}

void AddGauge(MetricFamily* family, Labels labels, double value) {
  ClientMetric& metric = family->metric.emplace_back();
  metric.label = std::move(labels);
  metric.gauge.value = value;
}

void AddCounter(MetricFamily* family, Labels labels, double value) {
  ClientMetric& metric = family->metric.emplace_back();
  metric.label = std::move(labels);
  metric.counter.value = value;
}

// JOB_STATE_PENDING with prefix JOB_STATE_ is "pending".
std::string LabelValue(const std::string& enumerator, absl::string_view prefix) {
  return absl::AsciiStrToLower(absl::StripPrefix(enumerator, prefix));
}

MetricFamily BuildInfo(const std::string& version) {
  MetricFamily family =
      Family("octavo_build_info", "Always 1; the label names the version of this coordinator.",
             MetricType::Gauge);
  AddGauge(&family, {{"version", version}}, 1);
  return family;
}

// Every state has a series, so that a rule may compare with zero.
MetricFamily Jobs(const Snapshot& snapshot) {
  MetricFamily family = Family("octavo_jobs", "Stored jobs by state.", MetricType::Gauge);
  for (int state = v1::JOB_STATE_PENDING; state <= v1::JobState_MAX; ++state) {
    const auto found = snapshot.jobs.find(static_cast<v1::JobState>(state));
    AddGauge(&family, {{"state", LabelValue(v1::JobState_Name(state), "JOB_STATE_")}},
             found == snapshot.jobs.end() ? 0 : static_cast<double>(found->second));
  }
  return family;
}

MetricFamily Workers(const Snapshot& snapshot) {
  MetricFamily family = Family("octavo_workers", "Known workers by state.", MetricType::Gauge);
  for (int state = v1::WORKER_STATE_CONNECTED; state <= v1::WorkerState_MAX; ++state) {
    const auto found = snapshot.workers.find(static_cast<v1::WorkerState>(state));
    AddGauge(&family, {{"state", LabelValue(v1::WorkerState_Name(state), "WORKER_STATE_")}},
             found == snapshot.workers.end() ? 0 : static_cast<double>(found->second));
  }
  return family;
}

MetricFamily FailedAttempts(const Snapshot& snapshot) {
  MetricFamily family =
      Family("octavo_attempts_failed_total",
             "Attempts that failed since this process started, by cause.", MetricType::Counter);
  for (int cause = v1::FAILURE_CAUSE_INVALID_INPUT; cause <= v1::FailureCause_MAX; ++cause) {
    const auto found = snapshot.counters.attempts_failed.find(static_cast<v1::FailureCause>(cause));
    AddCounter(
        &family, {{"cause", LabelValue(v1::FailureCause_Name(cause), "FAILURE_CAUSE_")}},
        found == snapshot.counters.attempts_failed.end() ? 0 : static_cast<double>(found->second));
  }
  return family;
}

MetricFamily Counter(absl::string_view name, absl::string_view help, int64_t value) {
  MetricFamily family = Family(name, help, MetricType::Counter);
  AddCounter(&family, {}, static_cast<double>(value));
  return family;
}

MetricFamily Rpcs(const Snapshot& snapshot) {
  MetricFamily family =
      Family("octavo_rpc_server_handled_total", "Calls that were answered, by method and code.",
             MetricType::Counter);
  for (const auto& [key, count] : snapshot.rpcs) {
    AddCounter(&family,
               {{"method", key.first},
                {"code", absl::AsciiStrToLower(absl::StatusCodeToString(key.second))}},
               static_cast<double>(count));
  }
  return family;
}

MetricFamily CommitSeconds(const Snapshot& snapshot) {
  MetricFamily family = Family("octavo_store_commit_seconds",
                               "Time that one transaction of the store took, its fsync included.",
                               MetricType::Histogram);
  prometheus::ClientMetric::Histogram& histogram = family.metric.emplace_back().histogram;
  const std::vector<uint64_t>& counts = snapshot.commit_seconds.counts();
  for (size_t i = 0; i < snapshot.commit_seconds.bounds().size(); ++i) {
    histogram.sample_count += counts[i];
    histogram.bucket.push_back({histogram.sample_count, snapshot.commit_seconds.bounds()[i]});
  }
  histogram.sample_count += counts.back();
  histogram.sample_sum = snapshot.commit_seconds.sum();
  return family;
}

MetricFamily QueuedEvents(const Snapshot& snapshot) {
  MetricFamily family =
      Family("octavo_queued_events", "Requests that wait for the coordinator's event loop.",
             MetricType::Gauge);
  AddGauge(&family, {}, static_cast<double>(snapshot.queued_events));
  return family;
}

MetricFamily JobInfo(const Snapshot& snapshot) {
  MetricFamily family =
      Family("octavo_job_info",
             "Always 1 while a job runs and shortly after; its labels describe the job.",
             MetricType::Gauge);
  for (const ActiveJob& job : snapshot.active_jobs) {
    AddGauge(&family,
             {{"job", job.id}, {"name", job.name}, {"model", job.model}, {"recipe", job.recipe}},
             1);
  }
  return family;
}

// Gauges that say how far an active job is. A job without a point has none.
void AddProgress(const Snapshot& snapshot, std::vector<MetricFamily>* families) {
  MetricFamily step = Family("octavo_train_step", "Optimizer step of the newest metric of the job.",
                             MetricType::Gauge);
  MetricFamily time = Family("octavo_train_last_progress_timestamp_seconds",
                             "Unix time at which the trainer took the newest metric of the job.",
                             MetricType::Gauge);
  for (const ActiveJob& job : snapshot.active_jobs) {
    if (job.latest.values.empty()) continue;
    AddGauge(&step, {{"job", job.id}}, static_cast<double>(job.latest.step));
    AddGauge(&time, {{"job", job.id}}, static_cast<double>(job.latest.time_unix_ms) / 1000);
  }
  families->push_back(std::move(step));
  families->push_back(std::move(time));
}

void AddTrainingMetrics(const Snapshot& snapshot, std::vector<MetricFamily>* families) {
  for (const MetricRow& row : MetricTable()) {
    if (row.prometheus.empty()) continue;
    MetricFamily family = Family(row.prometheus, row.help, MetricType::Gauge);
    for (const ActiveJob& job : snapshot.active_jobs) {
      const auto found = job.latest.values.find(row.name);
      if (found != job.latest.values.end()) AddGauge(&family, {{"job", job.id}}, found->second);
    }
    families->push_back(std::move(family));
  }
}

}  // namespace

std::vector<MetricFamily> Render(const Snapshot& snapshot, const std::string& version) {
  std::vector<MetricFamily> families;
  families.push_back(BuildInfo(version));
  families.push_back(Jobs(snapshot));
  families.push_back(Workers(snapshot));
  families.push_back(Counter("octavo_submits_total", "Submitted jobs that were stored.",
                             snapshot.counters.submits));
  families.push_back(Counter("octavo_repeated_submits_total",
                             "Submissions that repeated an answered request id.",
                             snapshot.counters.repeated_submits));
  families.push_back(Counter("octavo_attempts_started_total",
                             "Attempts that were placed on a worker.",
                             snapshot.counters.attempts_started));
  families.push_back(FailedAttempts(snapshot));
  families.push_back(Counter("octavo_facts_fenced_total",
                             "Reports of workers that were refused under an old epoch.",
                             snapshot.counters.fenced));
  families.push_back(Rpcs(snapshot));
  families.push_back(CommitSeconds(snapshot));
  families.push_back(Counter("octavo_store_commit_failures_total",
                             "Transactions that the store could not commit.",
                             snapshot.commit_failures));
  families.push_back(QueuedEvents(snapshot));
  families.push_back(JobInfo(snapshot));
  AddProgress(snapshot, &families);
  AddTrainingMetrics(snapshot, &families);
  // A family without a series would print nothing but its help.
  std::erase_if(families, [](const MetricFamily& family) { return family.metric.empty(); });
  return families;
}

std::vector<MetricFamily> Collector::Collect() const { return Render(take_(), version_); }

}  // namespace octavo::telemetry
