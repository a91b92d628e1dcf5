#include "tests/simulation/worker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace octavo::simulation {
namespace {

constexpr size_t kHeartbeatsRemembered = 100;

std::string Describe(const v1::LeaseIdentity& lease) {
  return absl::StrCat(lease.job_id(), ".", lease.epoch());
}

}  // namespace

Worker::Worker(const Environment& environment, std::string id, std::vector<v1::Device> devices)
    : universe_(environment.universe),
      coordinator_(environment.coordinator),
      storage_(environment.storage),
      ledger_(environment.ledger),
      settings_(environment.settings),
      flaws_(environment.flaws),
      devices_(std::move(devices)),
      caller_(environment.universe, environment.coordinator, &node) {
  node.name = id;
  identity_.set_worker_id(std::move(id));
  Start();
}

void Worker::Start() {
  node.alive = true;
  identity_.set_incarnation(absl::StrCat("life-", node.life));
  sequence_ = 0;
  Register();
  HeartbeatLoop();
}

// Trainers die with their agent; what was on the lines outlives it, except the session.
void Worker::Crash(absl::Duration outage) {
  if (!node.alive) return;
  universe_->Trace(node.name, " crashes");
  const bool seen = !universe_->random.Chance(universe_->faults.silent_close);
  if (registered_ && seen) {
    universe_->Send(node, coordinator_->node, absl::StrCat("end of session of ", node.name),
                    [this, identity = identity_] {
                      coordinator_->Receive(core::Observation(core::SessionClosed{identity}),
                                            nullptr);
                    });
  }
  ++node.life;
  node.alive = false;
  registered_ = registering_ = false;
  caller_.Clear();
  attempts_.clear();
  seen_.clear();
  sent_.clear();
  universe_->AfterTrue(outage, [this] { Start(); });
}

std::vector<v1::LeaseIdentity> Worker::Running() const {
  std::vector<v1::LeaseIdentity> running;
  for (const auto& [job, attempt] : attempts_) running.push_back(attempt.lease);
  return running;
}

void Worker::Register() {
  if (std::exchange(registering_, true)) return;
  registered_ = false;
  core::RegisterWorker body;
  *body.request.mutable_worker() = identity_;
  body.request.mutable_devices()->Assign(devices_.begin(), devices_.end());
  const std::vector<v1::LeaseIdentity> listed = Running();
  body.request.mutable_running()->Assign(listed.begin(), listed.end());
  caller_.Call(
      body, absl::StrCat("Register ", identity_.incarnation()),
      [this, listed](const Answer& answer) { OnRegistered(listed, answer); },
      Universe::Fate::kDiesWithSender);
}

void Worker::OnRegistered(const std::vector<v1::LeaseIdentity>& listed, const Answer& answer) {
  registering_ = false;
  if (!answer.ok()) {
    universe_->After(node, absl::Seconds(1), [this] { Register(); });
    return;
  }
  registered_ = true;
  const auto& response = std::get<v1::RegisterWorkerResponse>(*answer);
  for (const v1::LeaseIdentity& lease : listed) {
    const bool keep = std::any_of(
        response.keep().begin(), response.keep().end(),
        [&](const v1::LeaseIdentity& kept) { return Describe(kept) == Describe(lease); });
    const Attempt* attempt = FindAttempt(lease.job_id(), lease.epoch());
    if (keep || attempt == nullptr) continue;
    // One that has ended still reports its end: it may be a repetition that the coordinator knows.
    if (attempt->training) attempts_.erase(lease.job_id());
  }
}

void Worker::HeartbeatLoop() {
  if (registered_) {
    core::Heartbeat body;
    *body.request.mutable_worker() = identity_;
    body.request.set_sequence(++sequence_);
    const std::vector<v1::LeaseIdentity> running = Running();
    body.request.mutable_running()->Assign(running.begin(), running.end());
    sent_[sequence_] = Local();
    if (sent_.size() > kHeartbeatsRemembered) sent_.erase(sent_.begin());
    caller_.SendOnce(body, absl::StrCat("Heartbeat ", sequence_), [this](const Answer& answer) {
      if (!answer.ok()) Register();
    });
  }
  universe_->After(node, settings_.heartbeat, [this] { HeartbeatLoop(); });
}

Worker::Attempt* Worker::FindAttempt(const std::string& job_id, int64_t epoch) {
  const auto found = attempts_.find(job_id);
  if (found == attempts_.end() || found->second.lease.epoch() != epoch) return nullptr;
  return &found->second;
}

bool Worker::BelievesToHold(const Attempt& attempt) const {
  return attempt.training && (Local() < attempt.stop_at || flaws_.trainers_outlive_their_lease);
}

void Worker::OnSignal(const v1::WorkerIdentity& to, const v1::SessionResponse& message) {
  if (to.incarnation() != identity_.incarnation()) return;
  for (const v1::LeaseIdentity& lease : message.stop()) Stop(lease);
  const auto found = sent_.find(message.acknowledged_sequence());
  if (found == sent_.end()) return;
  const absl::Duration sent = flaws_.leases_count_from_receipt ? Local() : found->second;
  for (const v1::LeaseIdentity& lease : message.renewed()) {
    Attempt* attempt = FindAttempt(lease.job_id(), lease.epoch());
    if (attempt == nullptr) continue;
    attempt->stop_at = std::max(attempt->stop_at, sent + settings_.lease - settings_.lease_margin);
  }
  for (const v1::Assignment& assignment : message.assignments()) Take(assignment, sent);
}

void Worker::Stop(const v1::LeaseIdentity& lease) {
  if (Attempt* attempt = FindAttempt(lease.job_id(), lease.epoch()); attempt != nullptr) {
    if (attempt->training) EndTrainer(attempt, v1::FAILURE_CAUSE_CANCELLED);
    return;
  }
  // Its assignment may still be under way, and must not begin after its end was reported.
  if (lease.epoch() <= seen_[lease.job_id()]) return;
  seen_[lease.job_id()] = lease.epoch();
  Attempt& refused = attempts_[lease.job_id()] = Attempt();
  refused.lease = lease;
  EndTrainer(&refused, v1::FAILURE_CAUSE_CANCELLED);
}

void Worker::Take(const v1::Assignment& assignment, absl::Duration sent) {
  const v1::LeaseIdentity& lease = assignment.lease();
  const absl::Duration stop_at = sent + settings_.lease - settings_.lease_margin;
  if (lease.epoch() <= seen_[lease.job_id()] || Local() >= stop_at) return;
  seen_[lease.job_id()] = lease.epoch();
  attempts_.erase(lease.job_id());  // an older epoch
  const std::string& kind = assignment.spec().resources().device_kind();
  for (auto position = attempts_.begin(); position != attempts_.end();) {
    const Attempt& other = position->second;
    const bool collides = other.training && other.device_index == assignment.device_index() &&
                          other.spec.resources().device_kind() == kind;
    // The coordinator gave its device away, so its lease is gone.
    position = collides ? attempts_.erase(position) : std::next(position);
  }
  Attempt& attempt = attempts_[lease.job_id()];
  attempt.lease = lease;
  attempt.spec = assignment.spec();
  attempt.device_index = assignment.device_index();
  attempt.training = true;
  attempt.stop_at = stop_at;
  attempt.step = assignment.resume_from().step();
  attempt.unsent_metric = attempt.step + 1;
  attempt.parent = assignment.resume_from().folder();
  universe_->Trace(node.name, " begins ", Describe(lease), " at step ", attempt.step);
  const auto folder = storage_->find(attempt.parent);
  const bool readable = attempt.parent.empty() ||
                        (folder != storage_->end() && folder->second.job_id == lease.job_id() &&
                         folder->second.step == attempt.step);
  if (!readable) {
    universe_->Fail("one_lineage", absl::StrCat(Describe(lease), " cannot read ", attempt.parent));
  }
  v1::ReportAttemptStartedRequest started;
  *started.mutable_lease() = lease;
  Queue(&attempt, {started, absl::StrCat("Started ", Describe(lease)), nullptr, true});
  WatchLease(lease.job_id(), lease.epoch());
  ScheduleStep(attempt);
}

void Worker::WatchLease(const std::string& job_id, int64_t epoch) {
  Attempt* attempt = FindAttempt(job_id, epoch);
  if (attempt == nullptr || !attempt->training || flaws_.trainers_outlive_their_lease) return;
  if (Local() >= attempt->stop_at) {
    universe_->Trace(node.name, " stops ", job_id, ".", epoch, ": its lease ends");
    EndTrainer(attempt, v1::FAILURE_CAUSE_WORKER_LOST);
    return;
  }
  const absl::Duration left = std::max(attempt->stop_at - Local(), absl::Milliseconds(1));
  universe_->After(node, left, [this, job_id, epoch] { WatchLease(job_id, epoch); });
}

}  // namespace octavo::simulation
