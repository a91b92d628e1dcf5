// Durable state of the coordinator in one SQLite file. A Store writes and a StoreReader reads
// beside it (WAL: neither waits for the other).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/core/core.h"
#include "server/core/events.h"
#include "server/storage/sqlite.h"

namespace octavo::storage {

struct StoreOptions {
  std::string path;
  int64_t max_bytes = 0;  // the file grows no further; 0: as far as the disk goes
};

// Belongs to one thread at a time.
class Store {
 public:
  // Creates the file (mode 0600) where it is missing. FAILED_PRECONDITION when it was written by a
  // newer octavod or is no store.
  static absl::StatusOr<std::unique_ptr<Store>> Open(const StoreOptions& options);

  absl::StatusOr<core::DurableState> Load();

  // All of them or, on error, none; on disk (synchronous=FULL) once it returns. Applying a write
  // twice changes nothing.
  absl::Status Commit(absl::Span<const core::Write> writes);

  // Values of one metric by step, in [first_step, last_step].
  absl::StatusOr<std::map<int64_t, double>> ReadCurve(const std::string& job_id,
                                                      absl::string_view name, int64_t first_step,
                                                      int64_t last_step);

 private:
  struct Statements;
  explicit Store(Database database);
  absl::Status Prepare();
  absl::Status Apply(const core::PutJob& write);
  absl::Status Apply(const core::PutRequest& write);
  absl::Status Apply(const core::PutMetrics& write);
  absl::Status Apply(const core::PutLogs& write);

  Database database_;
  std::unique_ptr<Statements, void (*)(Statements*)> statements_;
};

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
