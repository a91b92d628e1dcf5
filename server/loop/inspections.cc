#include "server/loop/inspections.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file.h"

namespace octavo::loop {

std::string Inspections::Begin(absl::Duration deadline, Waiting waiting) {
  if (static_cast<int64_t>(entries_.size()) >= limit_) {
    waiting.Finish(absl::ResourceExhaustedError(
        absl::StrCat("inspection-limit of ", limit_, " inspections under way is reached")));
    return "";
  }
  std::string id = RandomHex(8);
  entries_.emplace(id, Entry{deadline, std::move(waiting)});
  return id;
}

void Inspections::Report(const v1::ReportInspectionRequest& report) {
  auto entry = entries_.extract(report.inspection_id());
  if (!entry.empty()) entry.mapped().waiting.Finish(report);
}

void Inspections::Expire(absl::Duration now) {
  std::vector<Waiting> expired;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    if (entry->second.deadline > now) {
      ++entry;
      continue;
    }
    expired.push_back(std::move(entry->second.waiting));
    entry = entries_.erase(entry);
  }
  for (Waiting& waiting : expired) {
    waiting.Finish(absl::DeadlineExceededError("the worker did not report in time"));
  }
}

}  // namespace octavo::loop
