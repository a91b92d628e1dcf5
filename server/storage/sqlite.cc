#include "server/storage/sqlite.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace octavo::storage {

absl::Status SqliteStatus(sqlite3* database, absl::string_view action) {
  const char* path = sqlite3_db_filename(database, "main");
  const std::string message =
      absl::StrCat(action, " ", path == nullptr ? "" : path, ": ", sqlite3_errmsg(database));
  switch (sqlite3_errcode(database)) {
    case SQLITE_FULL:
    case SQLITE_NOMEM:
    case SQLITE_TOOBIG:
      return absl::ResourceExhaustedError(message);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::UnavailableError(message);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::DataLossError(message);
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return absl::PermissionDeniedError(message);
    case SQLITE_IOERR:
      // A file-size limit or a full disk under the log shows as a failed or short write.
      if (const int extended = sqlite3_extended_errcode(database);
          extended == SQLITE_IOERR_WRITE || extended == SQLITE_IOERR_TRUNCATE ||
          extended == SQLITE_IOERR_SHMSIZE) {
        return absl::ResourceExhaustedError(message);
      }
      return absl::InternalError(message);
    default:
      return absl::InternalError(message);
  }
}

absl::StatusOr<Database> Database::Open(const std::string& path, Mode mode) {
  // One thread at a time uses a connection, so SQLite's own mutexes are not needed.
  const int flags =
      SQLITE_OPEN_NOMUTEX |
      (mode == Mode::kReadOnly ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
  sqlite3* handle = nullptr;
  const int result = sqlite3_open_v2(path.c_str(), &handle, flags, nullptr);
  Database database(handle);
  if (handle == nullptr) return absl::ResourceExhaustedError(absl::StrCat("opening ", path));
  if (result != SQLITE_OK) return SqliteStatus(handle, "opening");
  sqlite3_extended_result_codes(handle, 0);
  sqlite3_busy_timeout(handle, 5000);
  return database;
}

absl::Status Database::Execute(const std::string& sql) {
  if (sqlite3_exec(handle(), sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) {
    return SqliteStatus(handle(), "updating");
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Database::QueryInteger(const std::string& sql) {
  ASSIGN_OR_RETURN(Statement statement, Statement::Prepare(*this, sql));
  ASSIGN_OR_RETURN(const bool row, statement.Step());
  CHECK(row);
  return statement.Integer(0);
}

absl::StatusOr<Statement> Statement::Prepare(const Database& database, absl::string_view sql) {
  sqlite3_stmt* handle = nullptr;
  if (sqlite3_prepare_v3(database.handle(), sql.data(), static_cast<int>(sql.size()),
                         SQLITE_PREPARE_PERSISTENT, &handle, nullptr) != SQLITE_OK) {
    return SqliteStatus(database.handle(), "reading the schema of");
  }
  return Statement(handle);
}

Statement& Statement::Bind(int index, int64_t value) {
  CHECK(sqlite3_bind_int64(handle_.get(), index, value) == SQLITE_OK);
  return *this;
}

Statement& Statement::Bind(int index, double value) {
  CHECK(sqlite3_bind_double(handle_.get(), index, value) == SQLITE_OK);
  return *this;
}

Statement& Statement::Bind(int index, absl::string_view value) {
  // Every call site bounds its text far below SQLite's limit of 1 GB.
  CHECK(sqlite3_bind_text64(handle_.get(), index, value.data(), value.size(), SQLITE_TRANSIENT,
                            SQLITE_UTF8) == SQLITE_OK);
  return *this;
}

Statement& Statement::BindBlob(int index, absl::string_view value) {
  CHECK(sqlite3_bind_blob64(handle_.get(), index, value.data(), value.size(), SQLITE_TRANSIENT) ==
        SQLITE_OK);
  return *this;
}

absl::StatusOr<bool> Statement::Step() {
  const int result = sqlite3_step(handle_.get());
  if (result == SQLITE_ROW) return true;
  const absl::Status status = result == SQLITE_DONE
                                  ? absl::OkStatus()
                                  : SqliteStatus(sqlite3_db_handle(handle_.get()), "accessing");
  Reset();
  if (!status.ok()) return status;
  return false;
}

absl::Status Statement::Run() {
  const absl::StatusOr<bool> row = Step();
  if (row.ok() && *row) Reset();
  return row.status();
}

void Statement::Reset() {
  sqlite3_reset(handle_.get());
  sqlite3_clear_bindings(handle_.get());
}

double Statement::Real(int column) const {
  if (sqlite3_column_type(handle_.get(), column) == SQLITE_NULL) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  return sqlite3_column_double(handle_.get(), column);
}

std::string Statement::Bytes(int column) const {
  const void* data = sqlite3_column_blob(handle_.get(), column);
  const int size = sqlite3_column_bytes(handle_.get(), column);
  return size == 0 ? std::string() : std::string(static_cast<const char*>(data), size);
}

}  // namespace octavo::storage
