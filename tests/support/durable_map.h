// What a store keeps of the core's writes, in memory.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "server/core/core.h"

namespace octavo::testing_support {

struct DurableMap {
  std::map<std::string, core::JobPointer> jobs;
  std::map<std::string, core::PutRequest> requests;
  std::map<std::string, core::LogCursor> cursors;
  std::map<std::string, std::map<int64_t, v1::LogLine>> logs;  // by job, by offset
  std::map<std::string, std::map<std::pair<int64_t, std::string>, v1::MetricPoint>> metrics;

  void Apply(const core::Write& write) {
    std::visit([this](const auto& put) { Put(put); }, write);
  }

  core::DurableState State() const {
    core::DurableState state;
    for (const auto& [id, record] : jobs) {
      // Only what is durable: the rest must follow from it.
      auto stored = std::make_shared<core::JobRecord>();
      stored->job = record->job;
      stored->order = record->order;
      state.jobs.push_back({stored});
    }
    for (const auto& [id, put] : requests) state.requests.push_back(put);
    for (const auto& [id, cursor] : cursors) state.log_cursors.push_back(cursor);
    return state;
  }

 private:
  void Put(const core::PutJob& put) { jobs[put.record->job.id()] = put.record; }
  void Put(const core::PutRequest& put) { requests[put.request_id] = put; }
  void Put(const core::PutMetrics& put) {
    for (const v1::MetricPoint& point : put.points) {
      metrics[put.job_id][{point.step(), point.name()}] = point;
    }
  }
  void Put(const core::PutLogs& put) {
    cursors[put.cursor.job_id] = put.cursor;
    for (const v1::LogLine& line : put.lines) logs[put.cursor.job_id][line.offset()] = line;
  }
};

}  // namespace octavo::testing_support
