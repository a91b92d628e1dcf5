// A stream about one job: it hears of every change of it, and what it sends is up to a derived
// class's Pull.
#pragma once

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/job_state.h"
#include "server/loop/subscriptions.h"
#include "server/rpc/checks.h"
#include "server/rpc/pull_stream.h"

namespace octavo::rpc {

inline absl::Status NoSuchJob(const std::string& job_id) {
  return absl::NotFoundError(absl::StrCat("there is no job \"", job_id, "\""));
}

template <typename Message>
class JobStream : public PullStream<Message>,
                  public loop::JobListener,
                  public std::enable_shared_from_this<JobStream<Message>> {
 public:
  JobStream(Shell& shell, const char* method, std::string job_id, absl::Status check)
      : PullStream<Message>(shell, method), job_id_(std::move(job_id)), check_(std::move(check)) {}

  void OnNews(const loop::JobNews& news) final {
    {
      absl::MutexLock lock(&news_mutex_);
      job_ = news.job;
      if (news.first_metric_step > 0)
        first_new_step_ = std::min(first_new_step_, news.first_metric_step);
    }
    this->Kick();
  }

 protected:
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

  const std::string& job_id() const { return job_id_; }
  // As last committed.
  std::shared_ptr<const v1::Job> job() {
    absl::MutexLock lock(&news_mutex_);
    return job_;
  }
  // The lowest step that got points since the last call; kNone without.
  int64_t TakeFirstNewStep() {
    absl::MutexLock lock(&news_mutex_);
    return std::exchange(first_new_step_, kNone);
  }

 private:
  void Begin() final {
    if (absl::Status status = CheckJobId(job_id_); !status.ok()) return this->End(status);
    if (!check_.ok()) return this->End(check_);
    this->shell().loop->Call(
        [self = this->shared_from_this()](absl::StatusOr<loop::CoreLoop::Context*> context) {
          if (!context.ok()) return self->End(context.status());
          const core::JobPointer record = (*context)->core.jobs().Find(self->job_id_);
          if (record == nullptr) return self->End(NoSuchJob(self->job_id_));
          (*context)->job_listeners.Add(self->job_id_, self);
          self->OnNews({loop::Described((*context)->core, record), 0});
          self->Rest();
        });
  }

  const std::string job_id_;
  const absl::Status check_;  // of the other fields

  absl::Mutex news_mutex_;
  std::shared_ptr<const v1::Job> job_ ABSL_GUARDED_BY(news_mutex_);
  int64_t first_new_step_ ABSL_GUARDED_BY(news_mutex_) = kNone;
};

}  // namespace octavo::rpc
