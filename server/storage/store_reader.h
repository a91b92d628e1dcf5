// Reads beside a SqliteStore that writes (WAL: neither waits for the other).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "octavo/v1/log.pb.h"
#include "octavo/v1/metric.pb.h"
#include "server/storage/sqlite.h"

namespace octavo::storage {

// Belongs to one thread at a time. Answers from the newest commit.
class StoreReader {
 public:
  static absl::StatusOr<std::unique_ptr<StoreReader>> Open(const std::string& path);

  struct MetricQuery {
    std::string job_id;
    std::vector<std::string> names;  // empty: all
    int64_t after_step = 0;
    int64_t max_points = 0;  // exceeded only to complete the last step
  };
  struct MetricPage {
    std::vector<v1::MetricPoint> points;  // by step, then name
    int64_t next_after_step = 0;          // 0: nothing is left
  };
  absl::StatusOr<MetricPage> ReadMetrics(const MetricQuery& query);

  struct LogQuery {
    std::string job_id;
    int64_t offset = 0;     // negative: that many lines before the end
    int64_t max_bytes = 0;  // of text; exceeded only by a single line
  };
  struct LogPage {
    std::vector<v1::LogLine> lines;
    int64_t next_offset = 0;  // where the next page begins
    bool at_end = false;      // no line is stored at next_offset
  };
  absl::StatusOr<LogPage> ReadLogs(const LogQuery& query);

 private:
  explicit StoreReader(Database database) : database_(std::move(database)) {}
  Database database_;
};

}  // namespace octavo::storage
