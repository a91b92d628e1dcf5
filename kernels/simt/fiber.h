// A stack of its own and the switch between two of them. x86-64 switches in a few instructions;
// other machines, and builds with OCTAVO_SIMT_UCONTEXT, through ucontext. Known to AddressSanitizer
// and ThreadSanitizer.
#pragma once

#include <cstddef>

#if !defined(__x86_64__) && !defined(OCTAVO_SIMT_UCONTEXT)
#define OCTAVO_SIMT_UCONTEXT
#endif
#ifdef OCTAVO_SIMT_UCONTEXT
#include <ucontext.h>
#endif

namespace octavo::simt {

// The thread's own stack is a Fiber without an entry.
class Fiber {
 public:
  Fiber();                             // the calling thread
  explicit Fiber(size_t stack_bytes);  // with guard pages on both sides
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Makes the next SwitchTo run `entry(argument)` from its start. `entry` must not return: it
  // switches away for good.
  void Reset(void (*entry)(void*), void* argument);

  // Leaves `from`, which must be running, and runs `to`. Carries no order for ThreadSanitizer:
  // barriers do.
  static void Switch(Fiber* from, Fiber* to);

  // First statement of every entry: completes the switch that started it.
  static void Arrived(Fiber* here);

 private:
  static void EntryPoint();

  char* mapping_ = nullptr;
  size_t mapping_bytes_ = 0;
  char* stack_ = nullptr;  // lowest usable address
  size_t stack_bytes_ = 0;
  void* sanitizer_stack_ = nullptr;  // AddressSanitizer's fake stack while this fiber is away
  void* sanitizer_fiber_ = nullptr;  // ThreadSanitizer's
#ifdef OCTAVO_SIMT_UCONTEXT
  ucontext_t context_{};
#else
  void* stack_pointer_ = nullptr;  // while this fiber is away
#endif
};

}  // namespace octavo::simt
