#include "worker/engine/observe/memory.h"

#include <sys/resource.h>

#include "base/status.h"

namespace octavo::engine {

int64_t PeakResidentBytes() {
  rusage usage = {};
  CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
  return int64_t{1024} * usage.ru_maxrss;  // Linux counts in KiB
}

}  // namespace octavo::engine
