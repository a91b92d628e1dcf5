#include "worker/agent/fact.h"

#include "absl/strings/match.h"

namespace octavo::agent {

Verdict VerdictOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return Verdict::kDelivered;
    case absl::StatusCode::kFailedPrecondition:
      return absl::StartsWith(status.message(), "LEASE_FENCED") ? Verdict::kFenced
                                                                : Verdict::kRefused;
    case absl::StatusCode::kNotFound:  // of the job: nobody can hold a lease on it
      return Verdict::kFenced;
    case absl::StatusCode::kResourceExhausted:
      // Busy, and later perhaps not; but gRPC says the same of a message above its limit of bytes.
      return absl::StrContains(status.message(), "larger than max") ? Verdict::kRefused
                                                                    : Verdict::kRetry;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kAlreadyExists:
      return Verdict::kRefused;
    default:
      return Verdict::kRetry;
  }
}

}  // namespace octavo::agent
