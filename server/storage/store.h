// Where the coordinator's durable state lies.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/core/core.h"
#include "server/core/events.h"

namespace octavo::storage {

// Belongs to one thread at a time.
class Store {
 public:
  virtual ~Store() = default;

  virtual absl::StatusOr<core::DurableState> Load() = 0;

  // All of them or, on error, none; on disk once it returns. Applying a write twice changes
  // nothing.
  virtual absl::Status Commit(absl::Span<const core::Write> writes) = 0;

  // Values of one metric by step, in [first_step, last_step].
  virtual absl::StatusOr<std::map<int64_t, double>> ReadCurve(const std::string& job_id,
                                                              absl::string_view name,
                                                              int64_t first_step,
                                                              int64_t last_step) = 0;
};

}  // namespace octavo::storage
