// Job specs as files and as messages: parsing, printing, defaults, checking. Used alike by client,
// coordinator and worker.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "octavo/v1/job.pb.h"
#include "octavo/v1/spec.pb.h"

namespace octavo {

// YAML or JSON text (JSON is YAML) to a spec. Every problem at once: unknown fields (with the
// nearest known one), wrong types, duplicate keys; a Violation's field is the path in the file.
// `overrides` are "path=value" as in `--set stages[0].steps=100`, applied last.
inline constexpr char kWholeFile[] = "(file)";  // field of a violation by which nothing was read
struct ParsedSpec {
  v1::JobSpec spec;
  std::vector<v1::Violation> violations;
};
ParsedSpec ParseJobSpec(const std::string& text, const std::vector<std::string>& overrides);

// One-line-per-field YAML with the same names; ParseJobSpec(PrintJobSpec(x)) == x.
std::string PrintJobSpec(const v1::JobSpec& spec);

// Fills in the defaults that spec.proto documents. Idempotent.
void FillDefaults(v1::JobSpec* spec);

// Everything that can be wrong with a spec without opening a file; call after FillDefaults. Empty:
// none.
std::vector<v1::Violation> CheckJobSpec(const v1::JobSpec& spec);

// "stages[0].steps: -5 is ...; ..." for one-line messages.
std::string JoinViolations(const std::vector<v1::Violation>& violations);

// SHA-256 of a spec in a canonical form, for idempotent submits.
std::string JobSpecSha256(const v1::JobSpec& spec);

}  // namespace octavo
