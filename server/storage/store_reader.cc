#include "server/storage/store_reader.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace octavo::storage {

absl::StatusOr<std::unique_ptr<StoreReader>> StoreReader::Open(const std::string& path) {
  ASSIGN_OR_RETURN(Database database, Database::Open(path, Database::Mode::kReadOnly));
  return std::unique_ptr<StoreReader>(new StoreReader(std::move(database)));
}

absl::StatusOr<StoreReader::MetricPage> StoreReader::ReadMetrics(const MetricQuery& query) {
  std::string sql =
      "SELECT step, metric_names.name, value, time_ms FROM metrics "
      "JOIN metric_names ON metric_names.id=metrics.name "
      "WHERE job=(SELECT position FROM jobs WHERE id=?1) AND step>?2";
  for (size_t i = 0; i < query.names.size(); ++i) {
    absl::StrAppend(&sql, i == 0 ? " AND metric_names.name IN (?" : ", ?", i + 3);
  }
  absl::StrAppend(&sql, query.names.empty() ? "" : ")", " ORDER BY step, metric_names.name");
  ASSIGN_OR_RETURN(Statement statement, Statement::Prepare(database_, sql));
  statement.Bind(1, query.job_id).Bind(2, query.after_step);
  for (size_t i = 0; i < query.names.size(); ++i) {
    statement.Bind(static_cast<int>(i) + 3, query.names[i]);
  }
  MetricPage page;
  while (true) {
    ASSIGN_OR_RETURN(const bool row, statement.Step());
    if (!row) return page;
    const int64_t step = statement.Integer(0);
    const bool full = static_cast<int64_t>(page.points.size()) >= query.max_points;
    if (full && step != page.points.back().step()) {
      page.next_after_step = page.points.back().step();
      return page;
    }
    v1::MetricPoint& point = page.points.emplace_back();
    point.set_step(step);
    point.set_name(statement.Bytes(1));
    point.set_value(statement.Real(2));
    point.set_time_unix_ms(statement.Integer(3));
  }
}

absl::StatusOr<StoreReader::LogPage> StoreReader::ReadLogs(const LogQuery& query) {
  LogPage page;
  page.next_offset = query.offset;
  if (query.offset < 0) {
    ASSIGN_OR_RETURN(Statement end,
                     Statement::Prepare(database_,
                                        "SELECT coalesce(max(offset)+1, 0) FROM logs "
                                        "WHERE job=(SELECT position FROM jobs WHERE id=?1)"));
    ASSIGN_OR_RETURN(const bool row, end.Bind(1, query.job_id).Step());
    CHECK(row);
    page.next_offset = std::max<int64_t>(0, end.Integer(0) + query.offset);
  }
  ASSIGN_OR_RETURN(Statement statement,
                   Statement::Prepare(database_,
                                      "SELECT offset, time_ms, attempt, text FROM logs WHERE "
                                      "job=(SELECT position FROM jobs WHERE id=?1) AND offset>=?2 "
                                      "ORDER BY offset"));
  statement.Bind(1, query.job_id).Bind(2, page.next_offset);
  int64_t bytes = 0;
  while (true) {
    ASSIGN_OR_RETURN(const bool row, statement.Step());
    page.at_end = !row;
    if (!row) return page;
    std::string text = statement.Bytes(3);
    bytes += static_cast<int64_t>(text.size());
    if (!page.lines.empty() && bytes > query.max_bytes) return page;
    v1::LogLine& line = page.lines.emplace_back();
    line.set_offset(statement.Integer(0));
    line.set_time_unix_ms(statement.Integer(1));
    line.set_attempt_id(statement.Bytes(2));
    line.set_text(std::move(text));
    page.next_offset = line.offset() + 1;
  }
}

}  // namespace octavo::storage
