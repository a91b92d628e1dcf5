// Threads for what may block: reads of the store and of folders that a job names. Each has its own
// reader of the store.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/storage/store_reader.h"

namespace octavo::rpc {

class BlockingPool {
 public:
  // Gets the thread's reader, or why it will not run: the queue is full or the pool is ending.
  using Task = absl::AnyInvocable<void(absl::StatusOr<storage::StoreReader*>)>;

  struct Options {
    std::string store_path;
    int threads = 2;
    int64_t queue_limit = 10000;
  };
  static absl::StatusOr<std::unique_ptr<BlockingPool>> Start(const Options& options);
  // Ends after what is queued.
  ~BlockingPool();

  void Post(Task task) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  explicit BlockingPool(int64_t queue_limit) : queue_limit_(queue_limit) {}
  void Run(storage::StoreReader* reader) ABSL_LOCKS_EXCLUDED(mutex_);
  bool HasWork() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopping_ || !queue_.empty(); }

  const int64_t queue_limit_;
  std::vector<std::unique_ptr<storage::StoreReader>> readers_;
  std::vector<std::thread> threads_;

  absl::Mutex mutex_;
  std::deque<Task> queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace octavo::rpc
