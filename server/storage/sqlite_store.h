// The store in one SQLite file.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/types/span.h"
#include "server/storage/sqlite.h"
#include "server/storage/store.h"

namespace octavo::storage {

struct StoreOptions {
  std::string path;
  int64_t max_bytes = 0;  // the file grows no further; 0: as far as the disk goes
};

class SqliteStore final : public Store {
 public:
  // Creates the file (mode 0600) where it is missing. FAILED_PRECONDITION when it was written by a
  // newer octavod or is no store.
  static absl::StatusOr<std::unique_ptr<SqliteStore>> Open(const StoreOptions& options);

  absl::StatusOr<core::DurableState> Load() override;
  absl::Status Commit(absl::Span<const core::Write> writes) override;  // synchronous=FULL
  absl::StatusOr<std::map<int64_t, double>> ReadCurve(const std::string& job_id,
                                                      absl::string_view name, int64_t first_step,
                                                      int64_t last_step) override;

 private:
  struct Statements;
  explicit SqliteStore(Database database);
  absl::Status Prepare();
  absl::Status Apply(const core::PutJob& write);
  absl::Status Apply(const core::PutRequest& write);
  absl::Status Apply(const core::PutMetrics& write);
  absl::Status Apply(const core::PutLogs& write);

  Database database_;
  std::unique_ptr<Statements, void (*)(Statements*)> statements_;
};

}  // namespace octavo::storage
