#include "server/telemetry/collector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

#include <regex>

#include "absl/strings/match.h"

namespace octavo::telemetry {
namespace {

using testing::HasSubstr;
using testing::Not;

Snapshot SomeSnapshot() {
  Snapshot snapshot;
  snapshot.jobs[v1::JOB_STATE_RUNNING] = 2;
  snapshot.counters.attempts_failed[v1::FAILURE_CAUSE_WORKER_LOST] = 3;
  snapshot.rpcs[{"JobService/GetJob", absl::StatusCode::kNotFound}] = 4;
  snapshot.commit_seconds = Histogram({0.001, 0.01});
  ActiveJob job = {
      .id = "job-aaaaaaaa", .name = "first", .model = "tiny", .recipe = "fp8", .latest = {}};
  job.latest.values = {{"train/loss", 2.5}, {"divergence/probe_ratio", 0.001}};
  job.latest.step = 12;
  job.latest.time_unix_ms = 1700000000500;
  snapshot.active_jobs.push_back(job);
  return snapshot;
}

std::string Text(const Snapshot& snapshot) {
  return prometheus::TextSerializer().Serialize(Render(snapshot, "9.9"));
}

TEST(Render, ShowsFleetJobsAndTheirNewestMetrics) {
  const std::string text = Text(SomeSnapshot());
  for (const char* line :
       {"octavo_build_info{version=\"9.9\"} 1\n", "octavo_jobs{state=\"running\"} 2\n",
        "octavo_jobs{state=\"pending\"} 0\n",
        "octavo_attempts_failed_total{cause=\"worker_lost\"} 3\n",
        "octavo_rpc_server_handled_total{method=\"JobService/GetJob\",code=\"not_found\"} 4\n",
        "octavo_job_info{job=\"job-aaaaaaaa\",name=\"first\",model=\"tiny\",recipe=\"fp8\"} 1\n",
        "octavo_train_loss{job=\"job-aaaaaaaa\"} 2.5\n",
        "octavo_divergence_probe_ratio{job=\"job-aaaaaaaa\"} 0.001\n",
        "octavo_train_step{job=\"job-aaaaaaaa\"} 12\n",
        "octavo_train_last_progress_timestamp_seconds{job=\"job-aaaaaaaa\"} 1700000000.5\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(Render, HasNoSeriesOfAJobThatIsGone) {
  Snapshot snapshot = SomeSnapshot();
  snapshot.active_jobs.clear();
  EXPECT_THAT(Text(snapshot), Not(HasSubstr("job-aaaaaaaa")));
  EXPECT_THAT(Text(snapshot), Not(HasSubstr("octavo_train_loss")));
}

TEST(Render, CumulatesBuckets) {
  Snapshot snapshot = SomeSnapshot();
  for (const double seconds : {0.0005, 0.001, 0.005, 2.0}) snapshot.commit_seconds.Observe(seconds);
  const std::string text = Text(snapshot);
  EXPECT_THAT(text, HasSubstr("octavo_store_commit_seconds_bucket{le=\"0.001\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("octavo_store_commit_seconds_bucket{le=\"0.01\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("octavo_store_commit_seconds_bucket{le=\"+Inf\"} 4\n"));
  EXPECT_THAT(text, HasSubstr("octavo_store_commit_seconds_count 4\n"));
}

// https://prometheus.io/docs/practices/naming: a prefix, lower case, counters end in _total, every
// metric is explained.
TEST(Render, NamesMetricsAsPrometheusAsks) {
  const std::regex name("octavo_[a-z0-9_]*[a-z0-9]");
  for (const auto& family : Render(SomeSnapshot(), "1")) {
    EXPECT_TRUE(std::regex_match(family.name, name)) << family.name;
    EXPECT_GT(family.help.size(), 10u) << family.name;
    EXPECT_EQ(family.type == prometheus::MetricType::Counter, absl::EndsWith(family.name, "_total"))
        << family.name;
  }
}

TEST(IsExported, LastsForTheRetentionAfterTheEnd) {
  const absl::Time end = absl::FromUnixSeconds(1000);
  v1::Job job;
  job.set_state(v1::JOB_STATE_SUCCEEDED);
  job.mutable_end_time()->set_seconds(1000);
  EXPECT_TRUE(IsExported(job, end + absl::Seconds(59), absl::Seconds(60)));
  EXPECT_FALSE(IsExported(job, end + absl::Seconds(60), absl::Seconds(60)));
  job.set_state(v1::JOB_STATE_CANCELLING);
  EXPECT_TRUE(IsExported(job, end + absl::Hours(1), absl::Seconds(60)));
  job.set_state(v1::JOB_STATE_PENDING);
  EXPECT_FALSE(IsExported(job, end, absl::Seconds(60)));
}

TEST(LatestMetrics, KeepsTheNewestValueOfKnownNames) {
  LatestMetrics latest;
  v1::MetricPoint point;
  point.set_name("train/loss");
  point.set_step(3);
  point.set_value(1.0);
  v1::MetricPoint unknown = point;
  unknown.set_name("no/such");
  latest.Update("job-a", {point, unknown});
  point.set_value(0.5);
  latest.Update("job-a", {point});
  EXPECT_EQ(latest.jobs().at("job-a").values.size(), 1u);
  EXPECT_EQ(latest.jobs().at("job-a").values.at("train/loss"), 0.5);
  latest.Forget("job-a");
  EXPECT_TRUE(latest.jobs().empty());
}

}  // namespace
}  // namespace octavo::telemetry
