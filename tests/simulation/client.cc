#include "tests/simulation/client.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace octavo::simulation {

Client::Client(Universe* universe, Coordinator* coordinator, Ledger* ledger, Plan plan)
    : universe_(universe),
      ledger_(ledger),
      plan_(std::move(plan)),
      caller_(universe, coordinator, &node) {
  node.name = plan_.request_id;
  Later(plan_.submit_after, [this] { Submit(); });
}

void Client::Later(absl::Duration delay, std::function<void()> action) {
  ++waiting_;
  universe_->After(node, delay, [this, action = std::move(action)] {
    --waiting_;
    action();
  });
}

core::SubmitJob Client::Request() const {
  core::SubmitJob body;
  body.request.set_request_id(plan_.request_id);
  *body.request.mutable_spec() = plan_.spec;
  body.spec_sha256 = plan_.spec.SerializeAsString();
  body.memory_bytes = plan_.memory_bytes;
  return body;
}

void Client::Submit() {
  caller_.Call(Request(), absl::StrCat("Submit ", plan_.request_id),
               [this](const Answer& answer) { OnSubmitted(answer); });
}

void Client::OnSubmitted(const Answer& answer) {
  if (!answer.ok()) {
    universe_->Fail("one_outcome", answer.status().ToString());
    return;
  }
  const std::string& job_id = std::get<v1::Job>(*answer).id();
  const auto [known, first] = ledger_->submits.emplace(plan_.request_id, job_id);
  if (known->second != job_id) {
    universe_->Fail("one_outcome",
                    absl::StrCat(plan_.request_id, " became ", known->second, " and ", job_id));
  }
  if (std::exchange(submitted_, true)) return;
  if (plan_.asks_again) Later(absl::Seconds(3), [this] { Submit(); });
  if (plan_.asks_for_another) Later(absl::Seconds(5), [this] { AskForAnother(); });
  if (plan_.cancels) Later(plan_.cancel_after, [this, job_id] { Cancel(job_id); });
}

void Client::AskForAnother() {
  core::SubmitJob body = Request();
  body.spec_sha256 += " changed";
  caller_.Call(
      body, absl::StrCat("Submit another ", plan_.request_id), [this](const Answer& answer) {
        if (absl::IsAlreadyExists(answer.status())) return;
        universe_->Fail(
            "one_outcome",
            absl::StrCat(plan_.request_id, " with another spec: ", answer.status().ToString()));
      });
}

void Client::Cancel(const std::string& job_id) {
  caller_.Call(core::CancelJob{job_id}, absl::StrCat("Cancel ", job_id),
               [this, job_id](const Answer& answer) {
                 if (answer.ok()) ledger_->cancels.insert(job_id);
                 if (answer.ok() || absl::IsFailedPrecondition(answer.status())) return;
                 universe_->Fail("nothing_lost", answer.status().ToString());
               });
}

}  // namespace octavo::simulation
