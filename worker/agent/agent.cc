#include "worker/agent/agent.h"

#include <algorithm>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/log.h"

namespace octavo::agent {
namespace {

constexpr size_t kRememberedJobs = 4096;
// Of a shutdown, for the last reports, once the trainers are gone.
constexpr absl::Duration kReportTime = absl::Seconds(2);

LeaseKey KeyOf(const v1::LeaseIdentity& lease) { return {lease.job_id(), lease.epoch()}; }

v1::WorkerIdentity NewIdentity(const std::string& worker_id) {
  v1::WorkerIdentity identity;
  identity.set_worker_id(worker_id);
  identity.set_incarnation(RandomHex(8));
  return identity;
}

}  // namespace

Agent::Agent(Options options)
    : options_(std::move(options)),
      identity_(NewIdentity(options_.config.worker_id)),
      coordinator_(OpenChannel(options_.config.server), options_.config.call_deadline),
      inspector_(&options_.config, identity_, &coordinator_, options_.clock),
      session_(&coordinator_, this, options_.clock, Backoff::Options{}, RandomSeed()) {
  session_.Start();
}

Agent::~Agent() {
  session_.Stop();
  std::map<LeaseKey, std::unique_ptr<Attempt>> attempts;
  {
    absl::MutexLock lock(&mutex_);
    attempts.swap(attempts_);
  }
}

std::optional<v1::RegisterWorkerRequest> Agent::MakeRegistration() {
  v1::RegisterWorkerRequest request;
  *request.mutable_worker() = identity_;
  request.set_address(options_.config.worker_id);
  request.set_version(options_.version);
  absl::MutexLock lock(&mutex_);
  for (const v1::Device& device : options_.devices) {
    const bool stuck = UseOf(device.kind(), device.index()) == Attempt::DeviceUse::kStuck;
    if (!stuck) *request.add_devices() = device;
  }
  if (request.devices().empty()) return std::nullopt;
  for (const auto& [key, attempt] : attempts_) *request.add_running() = attempt->lease();
  return request;
}

void Agent::Registered(const v1::RegisterWorkerResponse& response) {
  absl::MutexLock lock(&mutex_);
  last_contact_ = options_.clock->Monotonic();
  std::set<LeaseKey> kept;
  for (const v1::LeaseIdentity& lease : response.keep()) kept.insert(KeyOf(lease));
  for (const auto& [key, attempt] : attempts_) {
    if (kept.count(key) == 0) attempt->Stop(StopReason::kFenced);
  }
}

v1::SessionRequest Agent::MakeHeartbeat() {
  v1::SessionRequest request;
  *request.mutable_worker() = identity_;
  absl::MutexLock lock(&mutex_);
  request.set_sequence(++sequence_);
  // Also those whose trainer has ended but whose end is not reported yet: they hold their job.
  for (const auto& [key, attempt] : attempts_) {
    if (!attempt->over()) *request.add_running() = attempt->lease();
  }
  return request;
}

void Agent::Received(const v1::SessionResponse& response) {
  for (const v1::Inspect& inspect : response.inspections()) inspector_.Add(inspect);
  absl::MutexLock lock(&mutex_);
  last_contact_ = options_.clock->Monotonic();
  for (const v1::LeaseIdentity& lease : response.stop()) Stop(lease);
  for (const v1::Assignment& assignment : response.assignments()) Assign(assignment);
}

void Agent::Rejected(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  status_ = status;
}

bool Agent::IsNews(const LeaseKey& key) {
  const auto [position, fresh] = newest_epoch_.try_emplace(key.job_id, key.epoch);
  if (!fresh) {
    if (key.epoch <= position->second) return false;
    position->second = key.epoch;
    return true;
  }
  remembered_jobs_.push_back(key.job_id);
  if (remembered_jobs_.size() > kRememberedJobs) {
    newest_epoch_.erase(remembered_jobs_.front());
    remembered_jobs_.pop_front();
  }
  return true;
}

Attempt::DeviceUse Agent::UseOf(const std::string& kind, int index) const {
  Attempt::DeviceUse use = Attempt::DeviceUse::kNone;
  for (const auto& [key, attempt] : attempts_) {
    const v1::Assignment& other = attempt->assignment();
    if (other.spec().resources().device_kind() != kind || other.device_index() != index) continue;
    use = std::max(use, attempt->device_use());
  }
  for (const StuckTrainer& trainer : stuck_trainers_) {
    if (trainer.device_kind == kind && trainer.device_index == index) {
      use = Attempt::DeviceUse::kStuck;
    }
  }
  return use;
}

// Its assignment may still be under way, and must not begin after its end was reported.
void Agent::Stop(const v1::LeaseIdentity& lease) {
  const LeaseKey key = KeyOf(lease);
  if (const auto found = attempts_.find(key); found != attempts_.end()) {
    found->second->Stop(StopReason::kRequested);
    return;
  }
  if (shutting_down_ || !IsNews(key)) return;
  v1::Assignment assignment;
  *assignment.mutable_lease() = lease;
  *assignment.mutable_lease()->mutable_worker() = identity_;
  attempts_[key] = MakeAttempt(assignment);
  attempts_[key]->Stop(StopReason::kRequested);
  session_.Poke();
}

void Agent::Assign(const v1::Assignment& assignment) {
  const LeaseKey key = KeyOf(assignment.lease());
  if (shutting_down_ || !IsNews(key)) return;
  for (const auto& [other_key, other] : attempts_) {
    const bool same_device = other->assignment().device_index() == assignment.device_index() &&
                             other->assignment().spec().resources().device_kind() ==
                                 assignment.spec().resources().device_kind();
    // The coordinator gave its device away, so its lease is gone.
    if (same_device && other->device_use() == Attempt::DeviceUse::kUses) {
      other->Stop(StopReason::kFenced);
    }
  }
  attempts_[key] = MakeAttempt(assignment);
  BeginWaitingAttempts();
  session_.Poke();
}

std::unique_ptr<Attempt> Agent::MakeAttempt(const v1::Assignment& assignment) {
  return std::make_unique<Attempt>(
      assignment,
      Attempt::Environment{.trainer = options_.config.trainer,
                           .socket_folder = options_.socket_folder,
                           .memory_bytes = MemoryOf(assignment),
                           .threads = ThreadsOfTrainer(),
                           .stop_grace = options_.config.stop_grace,
                           .pending_log_bytes = options_.config.pending_log_bytes,
                           .pending_metric_points = options_.config.pending_metric_points,
                           .out_of_contact_limit = options_.config.out_of_contact_limit,
                           .sender = &coordinator_,
                           .clock = options_.clock,
                           .kill_signal = options_.config.kill_signal,
                           .death_time = options_.config.death_time,
                           .on_over = [this] { AttemptOver(); }});
}

// Start and Refuse do nothing to an attempt that has begun.
void Agent::BeginWaitingAttempts() {
  for (const auto& [key, attempt] : attempts_) {
    if (attempt->device_use() != Attempt::DeviceUse::kNone || attempt->over()) continue;
    const std::string& kind = attempt->assignment().spec().resources().device_kind();
    const int index = attempt->assignment().device_index();
    const Attempt::DeviceUse use = UseOf(kind, index);
    if (use == Attempt::DeviceUse::kNone) attempt->Start();
    if (use != Attempt::DeviceUse::kStuck) continue;
    v1::Failure failure;
    failure.set_cause(v1::FAILURE_CAUSE_WORKER_LOST);
    failure.set_message(absl::StrCat("device ", kind, " ", index, " of worker ",
                                     options_.config.worker_id,
                                     " is not free: the trainer of an attempt before was killed "
                                     "and does not end"));
    attempt->Refuse(std::move(failure));
  }
}

int64_t Agent::MemoryOf(const v1::Assignment& assignment) const {
  for (const v1::Device& device : options_.devices) {
    if (device.kind() == assignment.spec().resources().device_kind() &&
        device.index() == assignment.device_index()) {
      return device.memory_bytes();
    }
  }
  return 0;
}

int Agent::ThreadsOfTrainer() const {
  if (options_.config.threads > 0) return options_.config.threads;
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, cores / std::max(1, options_.config.cpu_devices));
}

void Agent::AttemptOver() {
  // Taking the lock wakes Shutdown, which waits for this.
  { absl::MutexLock lock(&mutex_); }
  session_.Poke();
}

void Agent::Tick() {
  std::vector<std::unique_ptr<Attempt>> over;
  {
    absl::MutexLock lock(&mutex_);
    StopIfOutOfContact();
    over = TakeOver();
    ReapStuckTrainers();
    if (!shutting_down_) BeginWaitingAttempts();
  }
  // Their threads are joined here, without the lock.
}

std::vector<std::unique_ptr<Attempt>> Agent::TakeOver() {
  std::vector<std::unique_ptr<Attempt>> over;
  for (auto entry = attempts_.begin(); entry != attempts_.end();) {
    if (!entry->second->over()) {
      ++entry;
      continue;
    }
    const v1::Assignment& assignment = entry->second->assignment();
    if (std::unique_ptr<Child> stuck = entry->second->TakeStuckTrainer(); stuck != nullptr) {
      stuck_trainers_.push_back({assignment.spec().resources().device_kind(),
                                 assignment.device_index(), std::move(stuck)});
      session_.RegisterAnew();  // without that device
    }
    over.push_back(std::move(entry->second));
    entry = attempts_.erase(entry);
  }
  return over;
}

void Agent::ReapStuckTrainers() {
  const auto gone = [](const StuckTrainer& trainer) { return trainer.process->TryReap(); };
  const auto first_gone = std::remove_if(stuck_trainers_.begin(), stuck_trainers_.end(), gone);
  if (first_gone == stuck_trainers_.end()) return;
  LogInfo("a trainer that did not end is gone: its device is offered again");
  stuck_trainers_.erase(first_gone, stuck_trainers_.end());
  session_.RegisterAnew();
}

void Agent::StopIfOutOfContact() {
  const absl::Duration limit = options_.config.out_of_contact_limit;
  if (limit <= absl::ZeroDuration() || options_.clock->Monotonic() - last_contact_ < limit) return;
  for (const auto& [key, attempt] : attempts_) attempt->Stop(StopReason::kOutOfContact);
}

void Agent::Shutdown() {
  {
    absl::MutexLock lock(&mutex_);
    shutting_down_ = true;
    for (const auto& [key, attempt] : attempts_) attempt->Stop(StopReason::kShutdown);
  }
  // Without a session the coordinator places nothing here any more.
  session_.Stop();
  absl::MutexLock lock(&mutex_);
  const auto all_over = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return std::all_of(attempts_.begin(), attempts_.end(),
                       [](const auto& entry) { return entry.second->over(); });
  };
  mutex_.AwaitWithTimeout(absl::Condition(&all_over), options_.config.stop_grace + kReportTime);
}

absl::Status Agent::status() const {
  absl::MutexLock lock(&mutex_);
  return status_;
}

size_t Agent::running() const {
  absl::MutexLock lock(&mutex_);
  return attempts_.size();
}

}  // namespace octavo::agent
