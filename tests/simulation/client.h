// Someone who submits one job, asks again until answered, perhaps asks once more, perhaps cancels.
#pragma once

#include <string>

#include "tests/simulation/caller.h"
#include "tests/simulation/ledger.h"

namespace octavo::simulation {

class Client {
 public:
  struct Plan {
    std::string request_id;
    v1::JobSpec spec;
    int64_t memory_bytes = 0;
    absl::Duration submit_after;
    bool asks_again = false;        // the same request, after it was answered
    bool asks_for_another = false;  // the same request_id with another spec
    bool cancels = false;
    absl::Duration cancel_after;  // its submit was answered
  };
  Client(Universe* universe, Coordinator* coordinator, Ledger* ledger, Plan plan);

  bool Done() const { return submitted_ && caller_.Idle() && waiting_ == 0; }

  Node node;

 private:
  void Submit();
  void OnSubmitted(const Answer& answer);
  void AskForAnother();
  void Cancel(const std::string& job_id);
  void Later(absl::Duration delay, std::function<void()> action);
  core::SubmitJob Request() const;

  Universe* const universe_;
  Ledger* const ledger_;
  const Plan plan_;
  Caller caller_;
  bool submitted_ = false;
  int waiting_ = 0;  // timers
};

}  // namespace octavo::simulation
