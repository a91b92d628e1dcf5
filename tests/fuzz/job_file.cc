#include <string>

#include "base/status.h"
#include "proto/support/job_spec.h"
#include "tests/fuzz/targets.h"

namespace octavo::fuzz {

// What was read without a violation survives printing and reading.
void Job(absl::string_view bytes) {
  ParsedSpec parsed = ParseJobSpec(std::string(bytes), {});
  if (!parsed.violations.empty()) return;
  const ParsedSpec again = ParseJobSpec(PrintJobSpec(parsed.spec), {});
  CHECK(again.violations.empty());
  CHECK(JobSpecSha256(again.spec) == JobSpecSha256(parsed.spec));
  FillDefaults(&parsed.spec);
  static_cast<void>(CheckJobSpec(parsed.spec));
}

}  // namespace octavo::fuzz
