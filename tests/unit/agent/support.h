// What the agent's tests share: waiting, processes, a trainer that obeys and a sender that
// remembers.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "octavo/v1/worker.pb.h"
#include "tests/support/eventually.h"
#include "tests/support/temporary_folder.h"
#include "worker/agent/fact.h"

namespace octavo::agent {

using testing_support::Eventually;
using testing_support::TemporaryFolder;

// Whether the process exists and is no zombie.
bool IsAlive(int process_id);

// Path of this test program, which is also the trainer of its tests: run with --agent=..., it does
// what the name of the job's spec says; see fake_trainer.cc.
std::string FakeTrainer();
int RunFakeTrainer(const std::string& agent);

// An assignment for the fake trainer.
v1::Assignment MakeAssignment(const std::string& behaviour, const std::string& job_id = "job-a",
                              int64_t epoch = 1);

// Remembers every fact it takes, and answers as told.
class RecordingSender final : public FactSender {
 public:
  using Respond = std::function<absl::StatusOr<v1::CommitCheckpointResponse>(const Fact&)>;
  explicit RecordingSender(Respond respond =
                               [](const Fact&) { return v1::CommitCheckpointResponse(); })
      : respond_(std::move(respond)) {}

  absl::StatusOr<v1::CommitCheckpointResponse> Send(const Fact& fact) override {
    const auto answer = respond_(fact);
    absl::MutexLock lock(&mutex_);
    ++tries_;
    if (answer.ok()) delivered_.push_back(fact);
    return answer;
  }
  int tries() const {
    absl::MutexLock lock(&mutex_);
    return tries_;
  }
  std::vector<Fact> delivered() const {
    absl::MutexLock lock(&mutex_);
    return delivered_;
  }
  template <typename Request>
  std::vector<Request> Delivered() const {
    std::vector<Request> requests;
    for (const Fact& fact : delivered()) {
      if (const auto* request = std::get_if<Request>(&fact)) requests.push_back(*request);
    }
    return requests;
  }
  // Text of every log line, in order.
  std::vector<std::string> Lines() const {
    std::vector<std::string> lines;
    for (const auto& request : Delivered<v1::PushLogsRequest>()) {
      for (const v1::LogLine& line : request.lines()) lines.push_back(line.text());
    }
    return lines;
  }

 private:
  const Respond respond_;
  mutable absl::Mutex mutex_;
  int tries_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Fact> delivered_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octavo::agent
