// Whether a job may be stored and could ever run, beyond what its spec alone says.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "octavo/v1/job.pb.h"
#include "octavo/v1/node.pb.h"
#include "server/core/core.h"

namespace octavo::rpc {

// Key of the status payload that holds Violations; also the key of the trailing metadata.
inline constexpr char kViolationsKey[] = "octavo-violations-bin";

// INVALID_ARGUMENT with all violations in its message and as payload, both cut to what fits into
// response headers.
absl::Status ViolationsStatus(const std::vector<v1::Violation>& violations);

// Fills in defaults and checks the spec alone.
std::vector<v1::Violation> CompleteSpec(v1::JobSpec* spec);

// Bytes that the job needs on its device: what the spec says, else the estimate for its model. 0
// when config.json cannot be read here: workers may see folders that the coordinator does not.
// Reads a file.
int64_t EstimateJobMemory(const v1::JobSpec& spec);

// The baseline job exists and has succeeded.
std::vector<v1::Violation> CheckBaseline(const v1::JobSpec& spec, const core::Core& core);

// A connected worker is large enough, where one of the right kind is connected at all.
// `memory_bytes` of 0: unknown, so no violation.
std::vector<v1::Violation> CheckFleet(const v1::JobSpec& spec, int64_t memory_bytes,
                                      const std::vector<v1::Worker>& workers);

// "job-" and 8 random characters of [a-z0-9].
std::string NewJobId();

}  // namespace octavo::rpc
