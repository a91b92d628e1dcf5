#include "server/rpc/blocking_pool.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace octavo::rpc {

absl::StatusOr<std::unique_ptr<BlockingPool>> BlockingPool::Start(const Options& options) {
  auto pool = std::unique_ptr<BlockingPool>(new BlockingPool(options.queue_limit));
  for (int i = 0; i < options.threads; ++i) {
    ASSIGN_OR_RETURN(auto reader, storage::StoreReader::Open(options.store_path));
    pool->threads_.emplace_back([raw = pool.get(), at = reader.get()] { raw->Run(at); });
    pool->readers_.push_back(std::move(reader));
  }
  return pool;
}

BlockingPool::~BlockingPool() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

void BlockingPool::Post(Task task) {
  absl::Status refused;
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) {
      refused = absl::UnavailableError("the coordinator is shutting down");
    } else if (static_cast<int64_t>(queue_.size()) >= queue_limit_) {
      refused = absl::ResourceExhaustedError(absl::StrCat(
          "queue-limit of ", queue_limit_, " waiting reads is reached; try again later"));
    } else {
      queue_.push_back(std::move(task));
      return;
    }
  }
  task(refused);
}

void BlockingPool::Run(storage::StoreReader* reader) {
  while (true) {
    Task task;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &BlockingPool::HasWork));
      if (queue_.empty()) return;
      task = std::move(queue_.front());
      queue_.pop_front();
    }
    task(reader);
  }
}

}  // namespace octavo::rpc
