// Runs CUDA kernels on the host: the same .cu sources, every CUDA thread a fiber, one block after
// another on one thread.
//
// What it checks beside results: warp operations and barriers that not all named threads reach
// (reported with both source lines), reads of shared memory before writes (it starts as 0xFF bytes
// in every block), races within a block (under ThreadSanitizer: barriers and warp operations are
// the only order between threads), independence of the schedule (`schedule_seed`). What it says
// nothing about: speed, memory-model subtleties, races between blocks, fragment layouts of real
// tensor cores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace octavo::simt {

struct Dim3 {
  unsigned x = 1;
  unsigned y = 1;
  unsigned z = 1;
};

struct Thread {
  Dim3 thread;
  Dim3 block;
  Dim3 block_size;
  Dim3 grid_size;
};

// The CUDA thread that runs now.
const Thread& Current();

// Order in which ready threads run: 0 ascending, otherwise a permutation drawn from it. For the
// launches that follow.
void SetScheduleSeed(uint64_t seed);

// Runs `body` once per thread of the grid. False after a fault, which TakeError describes; the
// launch is abandoned at it. A block has 1 to 1024 threads.
bool Run(Dim3 grid, Dim3 block, const std::function<void()>& body);
std::string TakeError();

// Where a thread waits, for messages.
struct Site {
  const char* file;
  int line;
};

void Barrier(Site site);

// Publishes `mine` and waits for every lane of `mask`, which must name the caller; then lane i's
// value is at all + i * bytes, for lanes in the mask. Every warp operation is built on it. At most
// 64 bytes.
constexpr size_t kMaxGatherBytes = 64;
void WarpGather(uint32_t mask, const void* mine, void* all, size_t bytes, Site site);

unsigned Lane();

// Memory that the threads of a block share; the same for every call with the same key within a
// block.
void* SharedMemory(const void* key, size_t bytes);

}  // namespace octavo::simt
