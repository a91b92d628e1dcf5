// The devices this worker offers, as its trainer program sees them: the agent itself loads no
// driver.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "octavo/v1/node.pb.h"
#include "worker/agent/config.h"

namespace octavo::agent {

// Runs `octavo-trainer --describe-devices` and applies the configuration. INVALID_ARGUMENT when
// nothing is left to offer.
absl::StatusOr<std::vector<v1::Device>> FindDevices(const Config& config, const Clock& clock);

// `description` is what the trainer printed; `usable_memory_bytes` is shared by the CPU devices
// less a reserve for the system.
absl::StatusOr<std::vector<v1::Device>> OfferedDevices(absl::string_view description,
                                                       const Config& config,
                                                       int64_t usable_memory_bytes);

}  // namespace octavo::agent
