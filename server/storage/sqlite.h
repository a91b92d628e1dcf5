// The few SQLite calls the store makes, with errors as Status. A connection and its statements
// belong to one thread at a time.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace octavo::storage {

// Full disks and quotas are RESOURCE_EXHAUSTED, a locked file UNAVAILABLE, damage DATA_LOSS, others
// INTERNAL. Names the database's path.
absl::Status SqliteStatus(sqlite3* database, absl::string_view action);

class Database {
 public:
  enum class Mode { kReadWrite, kReadOnly };
  static absl::StatusOr<Database> Open(const std::string& path, Mode mode);

  absl::Status Execute(const std::string& sql);
  // The first column of the first row of a query that has one.
  absl::StatusOr<int64_t> QueryInteger(const std::string& sql);
  sqlite3* handle() const { return handle_.get(); }

 private:
  struct Close {
    void operator()(sqlite3* handle) const { sqlite3_close_v2(handle); }
  };
  explicit Database(sqlite3* handle) : handle_(handle) {}
  std::unique_ptr<sqlite3, Close> handle_;
};

// A prepared statement. Bind every parameter from 1, then Step until it says false or Run; both
// leave it ready for the next use.
class Statement {
 public:
  static absl::StatusOr<Statement> Prepare(const Database& database, absl::string_view sql);

  Statement& Bind(int index, int64_t value);
  Statement& Bind(int index, double value);  // NaN is stored as NULL, SQLite having no NaN
  Statement& Bind(int index, absl::string_view value);
  Statement& BindBlob(int index, absl::string_view value);

  absl::Status Run();           // a statement without rows
  absl::StatusOr<bool> Step();  // true: a row can be read; false: done, and reset
  void Reset();                 // leaves a query early

  int64_t Integer(int column) const { return sqlite3_column_int64(handle_.get(), column); }
  double Real(int column) const;  // NULL is NaN
  std::string Bytes(int column) const;

 private:
  struct Finalize {
    void operator()(sqlite3_stmt* handle) const { sqlite3_finalize(handle); }
  };
  explicit Statement(sqlite3_stmt* handle) : handle_(handle) {}
  std::unique_ptr<sqlite3_stmt, Finalize> handle_;
};

}  // namespace octavo::storage
