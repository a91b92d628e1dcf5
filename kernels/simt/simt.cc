// Compiled without -fsanitize=thread, like fiber.cc; the order that CUDA promises is told to
// ThreadSanitizer by hand.
#include "kernels/simt/simt.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/split_mix.h"
#include "kernels/simt/fiber.h"

extern "C" {
__attribute__((weak)) void __tsan_acquire(void* address);
__attribute__((weak)) void __tsan_release(void* address);
__attribute__((weak)) void __asan_poison_memory_region(const volatile void* address, size_t bytes);
__attribute__((weak)) void __asan_unpoison_memory_region(const volatile void* address,
                                                         size_t bytes);
}

namespace octavo::simt {
namespace {

constexpr size_t kStackBytes = 128 << 10;
constexpr unsigned kMaxThreads = 1024;
constexpr unsigned kWarpSize = 32;
constexpr size_t kMaxSharedBytes = 48 << 10;  // static shared memory of a block

enum class State { kReady, kBarrier, kWarp, kExited };

struct Lane32 {
  State state = State::kReady;
  uint32_t mask = 0;
  Site site{"", 0};
  Thread indices;
  char value[kMaxGatherBytes];
};

void Acquire(void* tag) {
  if (__tsan_acquire != nullptr) __tsan_acquire(tag);
}
void Release(void* tag) {
  if (__tsan_release != nullptr) __tsan_release(tag);
}

std::string Name(const Lane32& lane) {
  char text[256];
  const Dim3& thread = lane.indices.thread;
  if (lane.state == State::kExited) {
    std::snprintf(text, sizeof(text), "thread (%u,%u,%u) at exit", thread.x, thread.y, thread.z);
  } else {
    std::snprintf(text, sizeof(text), "thread (%u,%u,%u) at %s:%d", thread.x, thread.y, thread.z,
                  lane.site.file, lane.site.line);
  }
  return text;
}

// Shared arrays of one block. Allocated once: memory that a fiber got from malloc would look to
// ThreadSanitizer like a write of that fiber. Gaps between arrays are closed to AddressSanitizer,
// so that an index past the end is an error.
class SharedArena {
 public:
  SharedArena() : memory_(kMaxSharedBytes + kMaxArrays * (kGap + 16)) {}

  void Clear() {
    for (size_t i = 0; i < arrays_; ++i)
      Unpoison(table_[i].begin, table_[i].end - table_[i].begin + kGap);
    std::memset(memory_.data(), 0xFF, memory_.size());
    arrays_ = 0;
    used_ = 0;
  }

  void* Find(const void* key, size_t bytes) {
    for (size_t i = 0; i < arrays_; ++i) {
      if (table_[i].key == key) return memory_.data() + table_[i].begin;
    }
    const size_t begin = arrays_ == 0 ? 0 : (table_[arrays_ - 1].end + kGap + 15) / 16 * 16;
    used_ += bytes;
    if (used_ > kMaxSharedBytes || arrays_ == kMaxArrays) {
      std::fprintf(stderr,
                   "simt: a block wants %zu bytes of static shared memory; CUDA gives %zu\n", used_,
                   kMaxSharedBytes);
      std::abort();
    }
    table_[arrays_++] = {key, begin, begin + bytes};
    if (__asan_poison_memory_region != nullptr)
      __asan_poison_memory_region(memory_.data() + begin + bytes, kGap);
    return memory_.data() + begin;
  }

 private:
  static constexpr size_t kMaxArrays = 16;
  static constexpr size_t kGap = 64;
  struct Array {
    const void* key;
    size_t begin;
    size_t end;
  };
  void Unpoison(size_t begin, size_t bytes) {
    if (__asan_unpoison_memory_region != nullptr)
      __asan_unpoison_memory_region(memory_.data() + begin, bytes);
  }
  std::vector<char> memory_;
  Array table_[kMaxArrays];
  size_t arrays_ = 0;
  size_t used_ = 0;
};

// One block at a time; fibers are kept from launch to launch.
class Machine {
 public:
  bool Run(Dim3 grid, Dim3 block, const std::function<void()>& body);
  void Wait(State state, uint32_t mask, Site site);
  Lane32& current() { return lanes_[current_]; }
  Lane32& lane_of_warp(unsigned lane) { return lanes_[current_ / kWarpSize * kWarpSize + lane]; }
  unsigned current_index() const { return current_; }
  SharedArena& shared() { return shared_; }

  uint64_t schedule_seed = 0;
  std::string error;

 private:
  bool RunBlock();
  void RunReady();
  bool AllExited() const;
  bool ReleaseWarps();
  bool ReleaseWarp(unsigned first);
  bool ReleaseBarrier();
  void* TagOf(State state) {
    return state == State::kBarrier ? &block_tag_ : &warp_tags_[current_ / kWarpSize];
  }
  static void Entry(void* machine);

  const std::function<void()>* body_ = nullptr;
  Fiber scheduler_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Lane32> lanes_;
  SharedArena shared_;
  unsigned current_ = 0;
  uint64_t random_ = 0;
  // Addresses that ThreadSanitizer orders by: the host before every thread of a block, every thread
  // before the host. Two, since one would also order a thread that ends before one that has not
  // begun.
  char start_tag_ = 0;
  char end_tag_ = 0;
  char block_tag_ = 0;
  char warp_tags_[kMaxThreads / kWarpSize] = {};
};

Machine& TheMachine() {
  static thread_local Machine machine;
  return machine;
}

void Machine::Entry(void* argument) {
  auto* machine = static_cast<Machine*>(argument);
  const unsigned self = machine->current_;
  Fiber::Arrived(machine->fibers_[self].get());
  Acquire(&machine->start_tag_);
  (*machine->body_)();
  Release(&machine->end_tag_);
  machine->lanes_[self].state = State::kExited;
  Fiber::Switch(machine->fibers_[self].get(), &machine->scheduler_);
}

void Machine::Wait(State state, uint32_t mask, Site site) {
  const unsigned self = current_;
  Lane32& lane = lanes_[self];
  lane.state = state;
  lane.mask = mask;
  lane.site = site;
  void* tag = TagOf(state);
  Release(tag);
  Release(&end_tag_);  // a launch that is abandoned ends here
  Fiber::Switch(fibers_[self].get(), &scheduler_);
  Acquire(tag);
}

void Machine::RunReady() {
  std::vector<unsigned> order(lanes_.size());
  for (unsigned i = 0; i < order.size(); ++i) order[i] = i;
  if (schedule_seed != 0) {
    for (size_t i = order.size(); i > 1; --i)
      std::swap(order[i - 1], order[NextSplitMix(&random_) % i]);
  }
  for (unsigned index : order) {
    if (lanes_[index].state != State::kReady) continue;
    current_ = index;
    Fiber::Switch(&scheduler_, fibers_[index].get());
  }
}

bool Machine::AllExited() const {
  return std::all_of(lanes_.begin(), lanes_.end(),
                     [](const Lane32& lane) { return lane.state == State::kExited; });
}

// Nothing is ready when this runs: every lane waits or has exited, so a lane that is missing stays
// missing.
bool Machine::ReleaseWarp(unsigned first) {
  const unsigned end = std::min<unsigned>(first + kWarpSize, static_cast<unsigned>(lanes_.size()));
  bool released = false;
  for (unsigned i = first; i < end; ++i) {
    Lane32& waiting = lanes_[i];
    if (waiting.state != State::kWarp) continue;
    for (unsigned lane = 0; lane < kWarpSize; ++lane) {
      if ((waiting.mask >> lane & 1) == 0) continue;
      const bool exists = first + lane < end;
      if (exists && lanes_[first + lane].state == State::kWarp &&
          lanes_[first + lane].mask == waiting.mask)
        continue;
      error = "simt: a warp operation waits for a lane that does not come: " + Name(waiting) +
              ", " + (exists ? Name(lanes_[first + lane]) : "a lane beyond the block");
      return false;
    }
    for (unsigned lane = 0; lane < kWarpSize; ++lane) {
      if (waiting.mask >> lane & 1) lanes_[first + lane].state = State::kReady;
    }
    released = true;
  }
  return released;
}

bool Machine::ReleaseWarps() {
  bool released = false;
  for (unsigned first = 0; first < lanes_.size() && error.empty(); first += kWarpSize) {
    released |= ReleaseWarp(first);
  }
  return released;
}

bool Machine::ReleaseBarrier() {
  const Lane32& one = lanes_[0];
  for (const Lane32& lane : lanes_) {
    const bool same = lane.state == State::kBarrier && one.state == State::kBarrier &&
                      lane.site.line == one.site.line &&
                      std::strcmp(lane.site.file, one.site.file) == 0;
    if (!same) {
      error = "simt: not every thread reaches the same barrier: " + Name(one) + ", " + Name(lane);
      return false;
    }
  }
  for (Lane32& lane : lanes_) lane.state = State::kReady;
  return true;
}

bool Machine::RunBlock() {
  shared_.Clear();
  for (unsigned i = 0; i < lanes_.size(); ++i) {
    lanes_[i].state = State::kReady;
    fibers_[i]->Reset(&Machine::Entry, this);
  }
  Release(&start_tag_);
  while (true) {
    RunReady();
    if (AllExited()) break;
    if (ReleaseWarps()) continue;
    if (!error.empty() || !ReleaseBarrier()) break;
  }
  Acquire(&end_tag_);
  if (!error.empty()) fibers_.clear();  // abandoned in the middle of their work
  return error.empty();
}

bool Machine::Run(Dim3 grid, Dim3 block, const std::function<void()>& body) {
  error.clear();
  random_ = schedule_seed;
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > kMaxThreads || uint64_t{grid.x} * grid.y * grid.z == 0) {
    error = "simt: a launch needs 1 to 1024 threads a block and at least one block";
    return false;
  }
  body_ = &body;
  lanes_.resize(threads);
  while (fibers_.size() < threads) fibers_.push_back(std::make_unique<Fiber>(kStackBytes));
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        for (unsigned i = 0; i < threads; ++i) {
          lanes_[i].indices = {{i % block.x, i / block.x % block.y, i / (block.x * block.y)},
                               {x, y, z},
                               block,
                               grid};
        }
        if (!RunBlock()) return false;
      }
    }
  }
  return true;
}

}  // namespace

const Thread& Current() { return TheMachine().current().indices; }

void SetScheduleSeed(uint64_t seed) { TheMachine().schedule_seed = seed; }

bool Run(Dim3 grid, Dim3 block, const std::function<void()>& body) {
  return TheMachine().Run(grid, block, body);
}

std::string TakeError() { return std::exchange(TheMachine().error, ""); }

void Barrier(Site site) { TheMachine().Wait(State::kBarrier, 0, site); }

unsigned Lane() { return TheMachine().current_index() % kWarpSize; }

void WarpGather(uint32_t mask, const void* mine, void* all, size_t bytes, Site site) {
  Machine& machine = TheMachine();
  if (bytes > kMaxGatherBytes || (mask >> Lane() & 1) == 0) {
    std::fprintf(stderr,
                 "simt: %s:%d: a warp operation of %zu bytes whose mask %08x lacks its caller or "
                 "is too large\n",
                 site.file, site.line, bytes, mask);
    std::abort();
  }
  std::memcpy(machine.current().value, mine, bytes);
  machine.Wait(State::kWarp, mask, site);  // all named lanes have published
  for (unsigned lane = 0; lane < kWarpSize; ++lane) {
    if (mask >> lane & 1)
      std::memcpy(static_cast<char*>(all) + lane * bytes, machine.lane_of_warp(lane).value, bytes);
  }
  machine.Wait(State::kWarp, mask, site);  // all named lanes have read
}

void* SharedMemory(const void* key, size_t bytes) { return TheMachine().shared().Find(key, bytes); }

}  // namespace octavo::simt
