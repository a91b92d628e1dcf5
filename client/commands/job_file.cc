#include "client/commands/job_file.h"

#include <iterator>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/file.h"
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
  // A field that could not be read holds its default, about which there is nothing to say.
  std::set<std::string> unread;
  for (const v1::Violation& violation : job.violations) unread.insert(violation.field());
  FillDefaults(&parsed.spec);
  for (v1::Violation& violation : CheckJobSpec(parsed.spec)) {
    if (unread.count(violation.field()) == 0) job.violations.push_back(std::move(violation));
  }
  return job;
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
