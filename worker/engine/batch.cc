#include "worker/engine/batch.h"

#include <algorithm>

namespace octavo::engine {

int64_t CountTargets(const Batch& batch) {
  return std::count_if(batch.targets.begin(), batch.targets.end(),
                       [](int32_t target) { return target >= 0; });
}

}  // namespace octavo::engine
