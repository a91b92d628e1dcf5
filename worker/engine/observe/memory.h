// What the operating system says about this process.
#pragma once

#include <cstdint>

namespace octavo::engine {

// Highest resident set so far.
int64_t PeakResidentBytes();

}  // namespace octavo::engine
