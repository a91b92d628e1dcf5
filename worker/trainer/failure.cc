#include "worker/trainer/failure.h"

#include <algorithm>

#include "base/status.h"

namespace octavo::trainer {

v1::FailureCause CauseOf(const absl::Status& status, Phase phase) {
  using Code = absl::StatusCode;
  if (phase == Phase::kStore) {
    switch (status.code()) {
      case Code::kOutOfRange:
        return v1::FAILURE_CAUSE_NON_FINITE;
      case Code::kInvalidArgument:
      case Code::kFailedPrecondition:
        return v1::FAILURE_CAUSE_INTERNAL;
      default:
        return v1::FAILURE_CAUSE_STORAGE;
    }
  }
  switch (status.code()) {
    case Code::kInvalidArgument:
    case Code::kNotFound:
    case Code::kFailedPrecondition:
    case Code::kPermissionDenied:
    case Code::kUnimplemented:
      return v1::FAILURE_CAUSE_INVALID_INPUT;
    case Code::kOutOfRange:
      return v1::FAILURE_CAUSE_NON_FINITE;
    case Code::kResourceExhausted:
      return v1::FAILURE_CAUSE_OUT_OF_MEMORY;
    case Code::kDataLoss:
      return v1::FAILURE_CAUSE_STORAGE;
    default:
      return v1::FAILURE_CAUSE_INTERNAL;
  }
}

v1::Failure MakeFailure(const absl::Status& status, Phase phase) {
  CHECK(!status.ok());
  v1::Failure failure;
  failure.set_cause(CauseOf(status, phase));
  std::string message(status.message());
  std::replace(message.begin(), message.end(), '\n', ' ');
  failure.set_message(message);
  return failure;
}

}  // namespace octavo::trainer
