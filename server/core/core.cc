#include "server/core/core.h"

#include <utility>

#include "base/status.h"
#include "server/core/decision.h"

namespace octavo::core {
namespace {

constexpr int64_t kUpkeepLimit = 256;

}  // namespace

Core::Core(const Settings& settings, DurableState state, absl::Duration now)
    : settings_(settings), fleet_(settings_, now), overlay_(&jobs_) {
  Restore(std::move(state));
}

// Workers are unknown until they register. What they run keeps its lease meanwhile: the former
// process may have renewed it up to its end. An attempt whose assignment was lost with that process
// is assigned again.
void Core::Restore(DurableState state) {
  const absl::Duration now = fleet_.now();
  for (PutJob& put : state.jobs) {
    JobPointer record = std::move(put.record);
    const v1::Job& job = record->job;
    if (job.state() == v1::JOB_STATE_PENDING && job.attempts_size() > 0) {
      auto held_back = std::make_shared<JobRecord>(*record);
      held_back->not_before = now + BackoffAfter(settings_, job);
      record = std::move(held_back);
    }
    jobs_.Put(record);
    pending_.Update(nullptr, *record);
    if (!IsLeased(record->job)) continue;
    const v1::Attempt& attempt = LastAttempt(record->job);
    fleet_.Grant(record->order, {.job_id = record->job.id(),
                                 .epoch = record->job.epoch(),
                                 .holder = LeaseIdentityOf(record->job).worker(),
                                 .device_kind = record->job.spec().resources().device_kind(),
                                 .device_index = attempt.device_index(),
                                 .ends = now + settings_.lease,
                                 .assign_until = now + settings_.lease,
                                 .cancelling = record->job.state() == v1::JOB_STATE_CANCELLING,
                                 .over = std::nullopt});
  }
  for (LogCursor& cursor : state.log_cursors) jobs_.Put(std::move(cursor));
  for (PutRequest& request : state.requests) jobs_.Put(std::move(request));
  Advance(now);
}

// Before the event, so that a fact that comes after the lapse of its lease is refused whether or
// not anything else happened between.
void Core::Advance(absl::Duration now) {
  fleet_.Advance(now);
  pending_.Advance(fleet_.now(), [this](int64_t order) { return jobs_.Find(order); });
}

Effects Core::Observe(const Observation& observation, const Moment& moment) {
  Advance(moment.now);
  Effects effects;
  effects.answer = std::visit(
      [&](const auto& body) { return Take(body, moment, &effects.signals); }, observation);
  return effects;
}

Effects Core::Decide(const Request& request, const Moment& moment) {
  Advance(moment.now);
  Decision decision(settings_, fleet_, moment, &overlay_);
  Effects effects;
  effects.answer = std::visit([&](const auto& body) { return decision.Take(body); }, request);
  effects.signals = decision.TakeSignals();
  overlay_.EndRequest();
  if (effects.answer.ok() && !decision.answered_job().empty()) {
    effects.answer = Describe(*overlay_.Find(decision.answered_job()));
  }
  return effects;
}

std::vector<Signal> Core::Upkeep(const Moment& moment) {
  CHECK(overlay_.writes().empty());
  Advance(moment.now);
  Decision decision(settings_, fleet_, moment, &overlay_);
  int64_t ended = 0;
  for (const int64_t order : fleet_.over()) {
    if (++ended > kUpkeepLimit) break;
    decision.EndAttempt(jobs_.Find(order), &*fleet_.FindLease(order)->over, nullptr);
  }
  const std::vector<scheduling::Placement> placements =
      scheduling::PlanAssignments(pending_.ready(), fleet_.free_devices(), kUpkeepLimit);
  for (const scheduling::Placement& placement : placements) {
    decision.BeginAttempt(jobs_.Find(placement.order), *fleet_.FindWorkerById(placement.worker_id),
                          placement.device_index);
  }
  overlay_.EndRequest();
  return decision.TakeSignals();
}

bool Core::NeedsUpkeep() const {
  return !fleet_.over().empty() ||
         !scheduling::PlanAssignments(pending_.ready(), fleet_.free_devices(), 1).empty();
}

std::vector<JobPointer> Core::Commit() {
  std::vector<JobPointer> changed;
  for (const Write& write : overlay_.writes()) {
    if (const auto* logs = std::get_if<PutLogs>(&write)) jobs_.Put(logs->cursor);
    if (const auto* request = std::get_if<PutRequest>(&write)) jobs_.Put(*request);
  }
  for (const auto& [order, record] : overlay_.changed()) {
    Fold(record);
    changed.push_back(record);
  }
  counters_.Add(overlay_.counters);
  overlay_.Clear();
  Advance(fleet_.now());
  return changed;
}

void Core::Drop() { overlay_.Clear(); }

// A lease lives exactly while its job is RUNNING or CANCELLING.
void Core::Fold(const JobPointer& record) {
  const JobPointer former = jobs_.Put(record);
  pending_.Update(former.get(), *record);
  if (!IsLeased(record->job)) {
    fleet_.Release(record->order);
    return;
  }
  if (const auto grant = overlay_.grants().find(record->order); grant != overlay_.grants().end()) {
    fleet_.Grant(record->order, grant->second);
  }
  Lease* const lease = fleet_.FindLease(record->order);
  CHECK(lease != nullptr && lease->epoch == record->job.epoch());
  lease->cancelling = record->job.state() == v1::JOB_STATE_CANCELLING;
}

v1::Job Core::Describe(const JobRecord& record) const {
  v1::Job job = record.job;
  if (job.state() != v1::JOB_STATE_PENDING) return job;
  if (record.not_before > fleet_.now()) {
    job.set_pending_reason(BackoffReason(settings_, job));
  } else {
    const scheduling::WaitingJob waiting = Pending::Waiting(record);
    job.set_pending_reason(scheduling::WaitingReason(waiting.device_kind, waiting.memory_bytes,
                                                     fleet_.LargestDevice(waiting.device_kind)));
  }
  return job;
}

std::vector<v1::Worker> Core::ListWorkers(const std::string& after, int64_t limit) const {
  std::vector<v1::Worker> workers;
  for (const WorkerRecord* record : fleet_.List(after, limit)) {
    v1::Worker& worker = workers.emplace_back();
    worker.set_id(record->identity.worker_id());
    worker.set_address(record->address);
    worker.set_version(record->version);
    worker.set_state(record->connected ? v1::WORKER_STATE_CONNECTED : v1::WORKER_STATE_UNREACHABLE);
    *worker.mutable_last_heartbeat_time() = ToTimestamp(record->last_heartbeat_time);
    worker.mutable_devices()->Assign(record->devices.begin(), record->devices.end());
    for (const int64_t order : fleet_.LeasesOf(worker.id())) {
      const Lease& lease = *fleet_.FindLease(order);
      if (!SameIdentity(lease.holder, record->identity)) continue;
      worker.add_attempt_ids(LastAttempt(jobs_.Find(order)->job).id());
    }
  }
  return workers;
}

}  // namespace octavo::core
