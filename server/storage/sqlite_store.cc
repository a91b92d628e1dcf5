#include "server/storage/sqlite_store.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status.h"
#include "proto/support/job_state.h"
#include "server/storage/schema.h"

namespace octavo::storage {
namespace {

// SQLite gives its log and shared-memory files the mode of the database, so creating that one
// privately protects all three.
absl::Status CreatePrivately(const std::string& path) {
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return ErrnoStatus(errno, "creating", path);
  close(file);
  return absl::OkStatus();
}

absl::Status LimitSize(Database* database, int64_t max_bytes) {
  ASSIGN_OR_RETURN(const int64_t page_bytes, database->QueryInteger("PRAGMA page_size"));
  const int64_t pages = std::max<int64_t>(1, max_bytes / page_bytes);
  return database->QueryInteger(absl::StrCat("PRAGMA max_page_count=", pages)).status();
}

}  // namespace

struct SqliteStore::Statements {
  Statement put_job;
  Statement put_request;
  Statement put_metric_name;
  Statement put_metric;
  Statement put_log;
  Statement put_log_cursor;
  Statement read_curve;
};

SqliteStore::SqliteStore(Database database)
    : database_(std::move(database)),
      statements_(nullptr, [](Statements* statements) { delete statements; }) {}

absl::StatusOr<std::unique_ptr<SqliteStore>> SqliteStore::Open(const StoreOptions& options) {
  RETURN_IF_ERROR(CreatePrivately(options.path));
  ASSIGN_OR_RETURN(Database database, Database::Open(options.path, Database::Mode::kReadWrite));
  RETURN_IF_ERROR(database.Execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"));
  RETURN_IF_ERROR(MigrateSchema(&database));
  if (options.max_bytes > 0) RETURN_IF_ERROR(LimitSize(&database, options.max_bytes));
  auto store = std::unique_ptr<SqliteStore>(new SqliteStore(std::move(database)));
  RETURN_IF_ERROR(store->Prepare());
  return store;
}

absl::Status SqliteStore::Prepare() {
  const auto prepare = [this](absl::string_view sql) { return Statement::Prepare(database_, sql); };
  ASSIGN_OR_RETURN(Statement put_job,
                   prepare("INSERT INTO jobs(position, id, ended, job) VALUES(?1, ?2, ?3, ?4) "
                           "ON CONFLICT(position) DO UPDATE SET ended=?3, job=?4"));
  ASSIGN_OR_RETURN(Statement put_request,
                   prepare("INSERT OR REPLACE INTO requests VALUES(?1, ?2, ?3)"));
  ASSIGN_OR_RETURN(Statement put_metric_name,
                   prepare("INSERT OR IGNORE INTO metric_names(name) VALUES(?1)"));
  ASSIGN_OR_RETURN(Statement put_metric,
                   prepare("INSERT OR REPLACE INTO metrics(job, step, name, value, time_ms) VALUES("
                           "(SELECT position FROM jobs WHERE id=?1), ?2, "
                           "(SELECT id FROM metric_names WHERE name=?3), ?4, ?5)"));
  ASSIGN_OR_RETURN(
      Statement put_log,
      prepare("INSERT OR REPLACE INTO logs(job, offset, time_ms, attempt, text) VALUES("
              "(SELECT position FROM jobs WHERE id=?1), ?2, ?3, ?4, ?5)"));
  ASSIGN_OR_RETURN(Statement put_log_cursor,
                   prepare("INSERT OR REPLACE INTO log_cursors"
                           "(job, next_offset, bytes, full, epoch, next_sequence) "
                           "VALUES((SELECT position FROM jobs WHERE id=?1), ?2, ?3, ?4, ?5, ?6)"));
  ASSIGN_OR_RETURN(
      Statement read_curve,
      prepare("SELECT step, value FROM metrics "
              "WHERE job=(SELECT position FROM jobs WHERE id=?1) AND step BETWEEN ?2 AND ?3 "
              "AND name=(SELECT id FROM metric_names WHERE name=?4)"));
  statements_.reset(new Statements{
      std::move(put_job), std::move(put_request), std::move(put_metric_name), std::move(put_metric),
      std::move(put_log), std::move(put_log_cursor), std::move(read_curve)});
  return absl::OkStatus();
}

absl::StatusOr<core::DurableState> SqliteStore::Load() {
  core::DurableState state;
  ASSIGN_OR_RETURN(
      Statement jobs,
      Statement::Prepare(database_, "SELECT position, id, job FROM jobs ORDER BY position"));
  while (true) {
    ASSIGN_OR_RETURN(const bool row, jobs.Step());
    if (!row) break;
    auto record = std::make_shared<core::JobRecord>();
    record->order = jobs.Integer(0);
    if (!record->job.ParseFromString(jobs.Bytes(2))) {
      return absl::DataLossError(absl::StrCat("job ", jobs.Bytes(1), " in ",
                                              sqlite3_db_filename(database_.handle(), "main"),
                                              " cannot be read; restore the file from a backup"));
    }
    state.jobs.push_back({std::move(record)});
  }
  ASSIGN_OR_RETURN(Statement requests,
                   Statement::Prepare(database_, "SELECT id, job_id, spec_sha256 FROM requests"));
  while (true) {
    ASSIGN_OR_RETURN(const bool row, requests.Step());
    if (!row) break;
    state.requests.push_back({requests.Bytes(0), requests.Bytes(1), requests.Bytes(2)});
  }
  ASSIGN_OR_RETURN(
      Statement cursors,
      Statement::Prepare(database_,
                         "SELECT jobs.id, next_offset, bytes, full, epoch, next_sequence FROM "
                         "log_cursors JOIN jobs ON position=log_cursors.job WHERE ended=0"));
  while (true) {
    ASSIGN_OR_RETURN(const bool row, cursors.Step());
    if (!row) break;
    state.log_cursors.push_back({.job_id = cursors.Bytes(0),
                                 .next_offset = cursors.Integer(1),
                                 .bytes = cursors.Integer(2),
                                 .full = cursors.Integer(3) != 0,
                                 .epoch = cursors.Integer(4),
                                 .next_sequence = cursors.Integer(5)});
  }
  return state;
}

absl::Status SqliteStore::Commit(absl::Span<const core::Write> writes) {
  if (writes.empty()) return absl::OkStatus();
  const auto commit = [&]() -> absl::Status {
    RETURN_IF_ERROR(database_.Execute("BEGIN IMMEDIATE"));
    for (const core::Write& write : writes) {
      RETURN_IF_ERROR(std::visit([this](const auto& body) { return Apply(body); }, write));
    }
    return database_.Execute("COMMIT");
  };
  const absl::Status status = commit();
  // Some errors roll back by themselves; then there is no transaction left to end.
  if (!status.ok() && sqlite3_get_autocommit(database_.handle()) == 0) {
    database_.Execute("ROLLBACK").IgnoreError();
  }
  return status;
}

absl::Status SqliteStore::Apply(const core::PutJob& write) {
  const v1::Job& job = write.record->job;
  return statements_->put_job.Bind(1, write.record->order)
      .Bind(2, job.id())
      .Bind(3, int64_t{IsTerminal(job.state())})
      .BindBlob(4, job.SerializeAsString())
      .Run();
}

absl::Status SqliteStore::Apply(const core::PutRequest& write) {
  return statements_->put_request.Bind(1, write.request_id)
      .Bind(2, write.job_id)
      .Bind(3, write.spec_sha256)
      .Run();
}

absl::Status SqliteStore::Apply(const core::PutMetrics& write) {
  for (const v1::MetricPoint& point : write.points) {
    RETURN_IF_ERROR(statements_->put_metric_name.Bind(1, point.name()).Run());
    RETURN_IF_ERROR(statements_->put_metric.Bind(1, write.job_id)
                        .Bind(2, point.step())
                        .Bind(3, point.name())
                        .Bind(4, point.value())
                        .Bind(5, point.time_unix_ms())
                        .Run());
  }
  return absl::OkStatus();
}

absl::Status SqliteStore::Apply(const core::PutLogs& write) {
  for (const v1::LogLine& line : write.lines) {
    RETURN_IF_ERROR(statements_->put_log.Bind(1, write.cursor.job_id)
                        .Bind(2, line.offset())
                        .Bind(3, line.time_unix_ms())
                        .Bind(4, line.attempt_id())
                        .Bind(5, line.text())
                        .Run());
  }
  return statements_->put_log_cursor.Bind(1, write.cursor.job_id)
      .Bind(2, write.cursor.next_offset)
      .Bind(3, write.cursor.bytes)
      .Bind(4, int64_t{write.cursor.full})
      .Bind(5, write.cursor.epoch)
      .Bind(6, write.cursor.next_sequence)
      .Run();
}

absl::StatusOr<std::map<int64_t, double>> SqliteStore::ReadCurve(const std::string& job_id,
                                                                 absl::string_view name,
                                                                 int64_t first_step,
                                                                 int64_t last_step) {
  Statement& query = statements_->read_curve;
  query.Bind(1, job_id).Bind(2, first_step).Bind(3, last_step).Bind(4, name);
  std::map<int64_t, double> curve;
  while (true) {
    ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) return curve;
    curve[query.Integer(0)] = query.Real(1);
  }
}

}  // namespace octavo::storage
