// Which variant of the vector code runs.
#pragma once

namespace octavo::kernels::cpu {

enum class Processor { kPortable, kAvx512 };

// The best that this machine has, unless a test asked for less.
Processor ActiveProcessor();
// For tests. kAvx512 on a machine without it means its best.
void UseProcessor(Processor processor);

}  // namespace octavo::kernels::cpu
