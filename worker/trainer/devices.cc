#include "worker/trainer/devices.h"

#include <nlohmann/json.hpp>

#include "kernels/backend.h"

namespace octavo::trainer {
namespace {

constexpr int kMaxGpus = 64;  // of one machine; ends the search, should a backend accept any index

}  // namespace

std::string DescribeDevices() {
  nlohmann::ordered_json devices = nlohmann::json::array();
  nlohmann::ordered_json notes = nlohmann::json::array();
  const auto add = [&](const std::string& kind, const std::string& backend_name, int index) {
    const auto backend = kernels::OpenBackend(backend_name, {.threads = 1, .device_index = index});
    if (!backend.ok()) {
      if (index == 0) notes.push_back(std::string(backend.status().message()));
      return false;
    }
    const kernels::BackendDescription description = (*backend)->Describe();
    devices.push_back({{"kind", kind},
                       {"index", index},
                       {"name", description.device},
                       {"memory_bytes", description.memory_bytes}});
    return true;
  };
  add("cpu", "cpu", 0);
  for (int index = 0; index < kMaxGpus && add("gpu", "cuda", index); ++index) {
  }
  return nlohmann::ordered_json{{"devices", devices}, {"notes", notes}}.dump() + "\n";
}

}  // namespace octavo::trainer
