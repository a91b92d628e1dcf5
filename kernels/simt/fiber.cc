// Compiled without -fsanitize=thread (see CMakeLists.txt): switching stacks inside instrumented
// code would confuse its call stacks.
#include "kernels/simt/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

// Present only in programs that are linked with the sanitizers.
extern "C" {
__attribute__((weak)) void __sanitizer_start_switch_fiber(void** save, const void* bottom,
                                                          size_t bytes);
__attribute__((weak)) void __sanitizer_finish_switch_fiber(void* save, const void** bottom,
                                                           size_t* bytes);
__attribute__((weak)) void* __tsan_get_current_fiber();
__attribute__((weak)) void* __tsan_create_fiber(unsigned flags);
__attribute__((weak)) void __tsan_destroy_fiber(void* fiber);
__attribute__((weak)) void __tsan_switch_to_fiber(void* fiber, unsigned flags);
}

namespace octavo::simt {
namespace {

constexpr unsigned kTsanNoSync = 1;

struct Start {
  void (*entry)(void*);
  void* argument;
};

// Where a fresh fiber finds what to run: at the top of its stack, above what the switch pops.
Start* StartOf(char* stack, size_t bytes) {
  const uintptr_t top = reinterpret_cast<uintptr_t>(stack + bytes) & ~uintptr_t{15};
  return reinterpret_cast<Start*>(top - 64);
}

thread_local Start* starting = nullptr;

}  // namespace

#ifndef OCTAVO_SIMT_UCONTEXT
// Callee-saved registers of the System V x86-64 ABI go onto the old stack; the old stack pointer to
// *save.
extern "C" void octavo_simt_switch(void** save, void* load);
asm(R"(
.text
.globl octavo_simt_switch
.type octavo_simt_switch, @function
octavo_simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size octavo_simt_switch, .-octavo_simt_switch
)");
#endif

Fiber::Fiber() {
  if (__tsan_get_current_fiber != nullptr) sanitizer_fiber_ = __tsan_get_current_fiber();
}

Fiber::Fiber(size_t stack_bytes) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  stack_bytes_ = (stack_bytes + page - 1) / page * page;
  mapping_bytes_ = stack_bytes_ + 2 * page;
  void* mapping = mmap(nullptr, mapping_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) {
    std::perror("simt: mapping a stack");
    std::abort();
  }
  mapping_ = static_cast<char*>(mapping);
  stack_ = mapping_ + page;
  if (mprotect(stack_, stack_bytes_, PROT_READ | PROT_WRITE) != 0) {
    std::perror("simt: opening a stack");
    std::abort();
  }
  if (__tsan_create_fiber != nullptr) sanitizer_fiber_ = __tsan_create_fiber(0);
}

Fiber::~Fiber() {
  if (mapping_ == nullptr) return;
  if (__tsan_destroy_fiber != nullptr) __tsan_destroy_fiber(sanitizer_fiber_);
  munmap(mapping_, mapping_bytes_);
}

void Fiber::EntryPoint() {
  const Start start = *starting;
  start.entry(start.argument);
  std::abort();  // an entry switches away for good
}

void Fiber::Reset(void (*entry)(void*), void* argument) {
  Start* start = StartOf(stack_, stack_bytes_);
  *start = {entry, argument};
  sanitizer_stack_ = nullptr;
#ifdef OCTAVO_SIMT_UCONTEXT
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack_;
  context_.uc_stack.ss_size = stack_bytes_ - 128;
  context_.uc_link = nullptr;
  makecontext(&context_, &Fiber::EntryPoint, 0);
#else
  // Six registers and the return address; at entry the stack is 8 modulo 16, as after a call.
  void** top = reinterpret_cast<void**>(start) - 8;
  for (int i = 0; i < 6; ++i) top[i] = nullptr;
  top[6] = reinterpret_cast<void*>(&Fiber::EntryPoint);
  stack_pointer_ = top;
#endif
}

void Fiber::Switch(Fiber* from, Fiber* to) {
  if (to->stack_ != nullptr) starting = StartOf(to->stack_, to->stack_bytes_);
  if (__sanitizer_start_switch_fiber != nullptr) {
    __sanitizer_start_switch_fiber(&from->sanitizer_stack_, to->stack_, to->stack_bytes_);
  }
  if (__tsan_switch_to_fiber != nullptr) __tsan_switch_to_fiber(to->sanitizer_fiber_, kTsanNoSync);
#ifdef OCTAVO_SIMT_UCONTEXT
  swapcontext(&from->context_, &to->context_);
#else
  octavo_simt_switch(&from->stack_pointer_, to->stack_pointer_);
#endif
  Arrived(from);
}

void Fiber::Arrived(Fiber* here) {
  if (__sanitizer_finish_switch_fiber == nullptr) return;
  const void* bottom = nullptr;
  size_t bytes = 0;
  __sanitizer_finish_switch_fiber(here->sanitizer_stack_, &bottom, &bytes);
}

}  // namespace octavo::simt
