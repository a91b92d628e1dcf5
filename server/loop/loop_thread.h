// The thread that runs a loop's passes in octavod.
#pragma once

#include <thread>

#include "server/loop/core_loop.h"

namespace octavo::loop {

class LoopThread {
 public:
  // `loop` outlives it.
  explicit LoopThread(CoreLoop* loop)
      : loop_(loop), thread_([loop] {
          while (loop->AwaitWork()) loop->Pass();
          loop->Finish();
        }) {}
  // Serves what is queued, then ends.
  ~LoopThread() {
    loop_->Close();
    thread_.join();
  }
  LoopThread(const LoopThread&) = delete;
  LoopThread& operator=(const LoopThread&) = delete;

 private:
  CoreLoop* const loop_;
  std::thread thread_;
};

}  // namespace octavo::loop
