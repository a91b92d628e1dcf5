#include "worker/agent/devices.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "worker/agent/child.h"

namespace octavo::agent {
namespace {

constexpr absl::Duration kDescribeTime = absl::Seconds(60);  // a cold GPU driver takes some seconds
constexpr int64_t kDescriptionLimitBytes = 1 << 20;

// Left to the system and the agent: an eighth, at most 2 GiB.
int64_t ReserveBytes(int64_t memory_bytes) {
  return std::min<int64_t>(memory_bytes / 8, int64_t{2} << 30);
}

v1::Device MakeDevice(const nlohmann::json& description, int index, int64_t memory_bytes) {
  v1::Device device;
  device.set_kind(description.value("kind", ""));
  device.set_index(index);
  device.set_name(description.value("name", ""));
  device.set_memory_bytes(memory_bytes);
  return device;
}

}  // namespace

absl::StatusOr<std::vector<v1::Device>> OfferedDevices(absl::string_view description,
                                                       const Config& config,
                                                       int64_t usable_memory_bytes) {
  const auto json = nlohmann::json::parse(description, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("devices") || !json["devices"].is_array()) {
    return absl::InternalError(
        absl::StrCat(config.trainer, " described no devices; is it an octavo-trainer?"));
  }
  std::vector<v1::Device> devices;
  for (const nlohmann::json& found : json["devices"]) {
    if (found.value("kind", "") != "cpu") {
      devices.push_back(
          MakeDevice(found, found.value("index", 0), found.value("memory_bytes", int64_t{0})));
      continue;
    }
    const int64_t share =
        (usable_memory_bytes - ReserveBytes(usable_memory_bytes)) / std::max(config.cpu_devices, 1);
    for (int i = 0; i < config.cpu_devices; ++i) {
      devices.push_back(
          MakeDevice(found, i, config.memory_bytes > 0 ? config.memory_bytes : share));
    }
  }
  if (devices.empty()) {
    return absl::InvalidArgumentError(
        "this worker has no device to offer: no GPU was found and cpu-devices is 0");
  }
  return devices;
}

absl::StatusOr<std::vector<v1::Device>> FindDevices(const Config& config, const Clock& clock) {
  ASSIGN_OR_RETURN(const std::string description,
                   RunProgram({.arguments = {config.trainer, "--describe-devices"},
                               .environment = {},
                               .input = "",
                               .time_limit = kDescribeTime,
                               .output_limit_bytes = kDescriptionLimitBytes,
                               .clock = &clock}));
  return OfferedDevices(description, config, UsableMemoryBytes());
}

}  // namespace octavo::agent
