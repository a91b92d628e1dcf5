#include "worker/trainer/committer.h"

#include <utility>

#include "base/status.h"

namespace octavo::trainer {

Committer::Committer(Commit commit) : commit_(std::move(commit)), thread_([this] { Run(); }) {}

Committer::~Committer() {
  {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
  }
  thread_.join();
}

bool Committer::busy() const {
  absl::MutexLock lock(&mutex_);
  return asked_.has_value();
}

void Committer::Start(v1::Checkpoint checkpoint) {
  absl::MutexLock lock(&mutex_);
  CHECK(!asked_.has_value());
  asked_ = std::move(checkpoint);
}

std::optional<Committer::Answer> Committer::TakeAnswer(absl::Duration time_limit) {
  absl::MutexLock lock(&mutex_);
  const auto answered = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return answer_.has_value(); };
  if (!mutex_.AwaitWithTimeout(absl::Condition(&answered), time_limit)) return std::nullopt;
  asked_.reset();
  return std::exchange(answer_, std::nullopt);
}

void Committer::Run() {
  const auto has_work = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return closed_ || (asked_.has_value() && !answer_.has_value());
  };
  while (true) {
    v1::Checkpoint checkpoint;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(&has_work));
      if (closed_) return;
      checkpoint = *asked_;
    }
    ObsoleteFolders obsolete_folders = commit_(checkpoint);
    absl::MutexLock lock(&mutex_);
    answer_ = Answer{std::move(checkpoint), std::move(obsolete_folders)};
  }
}

}  // namespace octavo::trainer
