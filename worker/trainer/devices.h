// The devices of this machine that a trainer can use.
#pragma once

#include <string>

namespace octavo::trainer {

// {"devices": [{"kind": "cpu", "index": 0, "name": ..., "memory_bytes": ...}, ...],
//  "notes": ["why a kind of device is absent"]}
std::string DescribeDevices();

}  // namespace octavo::trainer
