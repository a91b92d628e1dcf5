#include "client/commands/job_file.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status.h"
#include "client/render/format.h"
#include "client/render/json.h"
#include "client/render/table.h"
#include "proto/support/job_spec.h"

namespace octavo::client {
namespace {

constexpr int64_t kMaxJobFileBytes = 1 << 20;

}  // namespace

absl::StatusOr<LoadedJob> LoadJob(const JobFile& file) {
  const auto text = ReadFile(file.path, kMaxJobFileBytes);
  if (!text.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("job file: ", text.status().message()));
  }
  ParsedSpec parsed = ParseJobSpec(*text, file.overrides);
  LoadedJob job = {.spec = parsed.spec, .violations = std::move(parsed.violations)};
  job.readable =
      std::none_of(job.violations.begin(), job.violations.end(),
                   [](const v1::Violation& violation) { return violation.field() == kWholeFile; });
  if (!job.readable) return job;  // what every field lacks is no news
  // A field that could not be read holds its default, about which there is nothing to say.
  std::set<std::string> unread;
  for (const v1::Violation& violation : job.violations) unread.insert(violation.field());
  FillDefaults(&parsed.spec);
  for (v1::Violation& violation : CheckJobSpec(parsed.spec)) {
    if (unread.count(violation.field()) == 0) job.violations.push_back(std::move(violation));
  }
  return job;
}

absl::StatusOr<v1::ValidateJobResponse> CheckJob(Context& context, const LoadedJob& job) {
  absl::StatusOr<v1::ValidateJobResponse> found = [&]() -> decltype(found) {
    if (!job.readable) return v1::ValidateJobResponse();
    ASSIGN_OR_RETURN(Client* const client, context.client());
    return client->ValidateJob(job.spec);
  }();
  if (job.violations.empty()) return found;
  v1::ValidateJobResponse answer;
  std::set<std::string> fields;  // a worker may say more than one thing about any other
  for (const v1::Violation& violation : job.violations) {
    *answer.add_violations() = violation;
    fields.insert(violation.field());
  }
  if (!found.ok()) {
    answer.add_warnings(
        absl::StrCat("only the fields of the job file were checked: ", found.status().message()));
    return answer;
  }
  for (const v1::Violation& violation : found->violations()) {
    if (fields.count(violation.field()) == 0) *answer.add_violations() = violation;
  }
  *answer.mutable_warnings() = found->warnings();
  return answer;
}

void PrintViolations(const Context& context, const std::string& path,
                     const google::protobuf::RepeatedPtrField<v1::Violation>& violations) {
  if (context.json()) {
    v1::Violations message;
    *message.mutable_violations() = violations;
    context.out() << JsonDocument(message);
  }
  Table table({{""}, {""}});
  for (const v1::Violation& violation : violations) {
    table.Add({"  " + Printable(violation.field()), Printable(violation.message())});
  }
  context.error() << "octavo: " << Printable(path) << " has " << violations.size()
                  << (violations.size() == 1 ? " violation:\n" : " violations:\n")
                  << table.Render();
}

void PrintWarnings(const Context& context,
                   const google::protobuf::RepeatedPtrField<std::string>& warnings) {
  for (const std::string& warning : warnings) {
    context.error() << "octavo: warning: " << Printable(warning) << "\n";
  }
}

}  // namespace octavo::client
