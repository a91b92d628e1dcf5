#include "server/storage/schema.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace octavo::storage {
namespace {

// Marks the file as ours (PRAGMA application_id): "OCTV".
constexpr int64_t kApplicationId = 0x4F435456;

// Rows of metrics and logs name their job by `position` (8 bytes at most) instead of its id.
// `ended` marks terminal jobs. Tables whose key is most of the row have no rowid: one B-tree
// instead of two.
constexpr char kVersion1[] = R"sql(
  CREATE TABLE jobs (
    position INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    ended INTEGER NOT NULL,
    job BLOB NOT NULL);
  CREATE TABLE requests (
    id TEXT PRIMARY KEY,
    job_id TEXT NOT NULL,
    spec_sha256 TEXT NOT NULL) WITHOUT ROWID;
  CREATE TABLE metric_names (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE);
  CREATE TABLE metrics (
    job INTEGER NOT NULL,
    step INTEGER NOT NULL,
    name INTEGER NOT NULL,
    value REAL,
    time_ms INTEGER NOT NULL,
    PRIMARY KEY (job, step, name)) WITHOUT ROWID;
  CREATE TABLE logs (
    job INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    time_ms INTEGER NOT NULL,
    attempt TEXT NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (job, offset)) WITHOUT ROWID;
  CREATE TABLE log_cursors (
    job INTEGER PRIMARY KEY,
    next_offset INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    full INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    next_sequence INTEGER NOT NULL);
)sql";

absl::Status CheckOwnership(Database* database, int64_t version) {
  ASSIGN_OR_RETURN(const int64_t application, database->QueryInteger("PRAGMA application_id"));
  ASSIGN_OR_RETURN(const int64_t tables,
                   database->QueryInteger("SELECT count(*) FROM sqlite_schema"));
  const char* path = sqlite3_db_filename(database->handle(), "main");
  const bool empty = tables == 0 && version == 0 && application == 0;
  if (!empty && application != kApplicationId) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is a database of another program; choose another --data-dir"));
  }
  if (version > kSchemaVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " has schema version ", version, "; this octavod knows versions up to ",
                     kSchemaVersion, ": start the newer octavod that wrote it"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status MigrateSchema(Database* database) {
  ASSIGN_OR_RETURN(const int64_t version, database->QueryInteger("PRAGMA user_version"));
  RETURN_IF_ERROR(CheckOwnership(database, version));
  if (version == kSchemaVersion) return absl::OkStatus();
  return database->Execute(absl::StrCat("BEGIN IMMEDIATE;", kVersion1,
                                        "PRAGMA application_id=", kApplicationId,
                                        "; PRAGMA user_version=", kSchemaVersion, "; COMMIT;"));
}

}  // namespace octavo::storage
