#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "server/core/state.h"

namespace octavo::core {
namespace {

constexpr size_t kRememberedIncarnations = 16;  // per worker id; only a late message needs one

bool SameIdentity(const v1::WorkerIdentity& a, const v1::WorkerIdentity& b) {
  return a.worker_id() == b.worker_id() && a.incarnation() == b.incarnation();
}

}  // namespace

WorkerRecord* State::FindWorker(const v1::WorkerIdentity& identity) {
  const auto found = workers_.find(identity.worker_id());
  if (found == workers_.end() || !SameIdentity(found->second.identity, identity)) return nullptr;
  return &found->second;
}

absl::Status State::AdmitIncarnation(const v1::WorkerIdentity& identity) {
  const std::string& id = identity.worker_id();
  if (id.empty() || identity.incarnation().empty()) {
    return absl::InvalidArgumentError("a worker registers with its worker_id and its incarnation");
  }
  const auto replaced = replaced_.find(id);
  if (replaced != replaced_.end() &&
      std::count(replaced->second.begin(), replaced->second.end(), identity.incarnation()) > 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "incarnation ", identity.incarnation(), " of worker ", id, " was replaced by ",
        workers_.at(id).identity.incarnation(), "; give every agent its own worker id"));
  }
  const auto known = workers_.find(id);
  if (known == workers_.end()) {
    if (static_cast<int64_t>(workers_.size()) < settings_.max_workers) return absl::OkStatus();
    return absl::ResourceExhaustedError(absl::StrCat(
        workers_.size(), " workers are registered, the limit is ", settings_.max_workers));
  }
  if (SameIdentity(known->second.identity, identity)) return absl::OkStatus();
  if (known->second.connected) {
    return absl::UnavailableError(absl::StrCat(
        "worker id ", id, " is in use: incarnation ", known->second.identity.incarnation(),
        " was heard ", absl::FormatDuration(now_ - known->second.last_heartbeat),
        " ago; try again when it is gone, or give this agent another worker id"));
  }
  std::deque<std::string>& former = replaced_[id];
  former.push_back(known->second.identity.incarnation());
  if (former.size() > kRememberedIncarnations) former.pop_front();
  return absl::OkStatus();
}

// A trainer dies with its agent (the kernel sees to it), so another incarnation under the same
// worker id means that nothing of the former one runs any more: no lease has to be waited for.
void State::DropLeasesOfFormerIncarnation(const v1::WorkerIdentity& identity) {
  std::vector<JobRecord*> lost;
  for (const auto& [order, record] : leased_) {
    const v1::WorkerIdentity holder = HolderOf(record->job);
    if (holder.worker_id() == identity.worker_id() &&
        holder.incarnation() != identity.incarnation()) {
      lost.push_back(record);
    }
  }
  for (JobRecord* record : lost) {
    v1::Failure failure;
    failure.set_cause(v1::FAILURE_CAUSE_WORKER_LOST);
    failure.set_message(absl::StrCat("the agent of worker ", identity.worker_id(),
                                     " was started anew and its trainers ended with it"));
    EndAttempt(record, &failure, nullptr);
  }
}

State::AnswerOr State::Register(const v1::RegisterWorkerRequest& request) {
  RETURN_IF_ERROR(AdmitIncarnation(request.worker()));
  DropLeasesOfFormerIncarnation(request.worker());
  const auto [position, fresh] =
      workers_.insert_or_assign(request.worker().worker_id(), WorkerRecord());
  WorkerRecord& worker = position->second;
  worker.identity = request.worker();
  worker.address = request.address();
  worker.version = request.version();
  worker.devices.assign(request.devices().begin(), request.devices().end());
  worker.last_heartbeat = now_;
  worker.last_heartbeat_time = wall_;
  worker.sequence = -1;
  for (const auto& [order, record] : leased_) {
    if (SameIdentity(HolderOf(record->job), worker.identity)) worker.leases.insert(order);
  }
  fleet_changed_ = true;
  next_worker_review_ =
      std::min(next_worker_review_, now_ + std::min(settings_.unreachable_after, settings_.lease));

  v1::RegisterWorkerResponse response;
  response.set_heartbeat_ms(absl::ToInt64Milliseconds(settings_.heartbeat));
  response.set_lease_ms(absl::ToInt64Milliseconds(settings_.lease));
  response.set_lease_margin_ms(absl::ToInt64Milliseconds(settings_.lease_margin));
  for (v1::LeaseIdentity lease : request.running()) {
    *lease.mutable_worker() = request.worker();
    JobRecord* record = FindLeased(lease);
    if (record == nullptr) continue;
    record->lease->listed = true;
    record->lease->missing = 0;
    *response.add_keep() = lease;
  }
  return AnswerBody(response);
}

absl::Status State::OnHeartbeat(const v1::SessionRequest& request) {
  WorkerRecord* worker = FindWorker(request.worker());
  if (worker == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("incarnation ", request.worker().incarnation(), " of worker ",
                     request.worker().worker_id(), " is not registered; call RegisterWorker"));
  }
  if (request.sequence() <= worker->sequence) return absl::OkStatus();  // overtaken by a newer one
  worker->sequence = request.sequence();
  worker->last_heartbeat = now_;
  worker->last_heartbeat_time = wall_;
  if (!worker->connected) fleet_changed_ = true;
  worker->connected = true;
  next_worker_review_ = std::min(next_worker_review_, now_ + settings_.unreachable_after);

  v1::SessionResponse response;
  response.set_acknowledged_sequence(request.sequence());
  std::set<int64_t> listed;
  for (v1::LeaseIdentity lease : request.running()) {
    *lease.mutable_worker() = request.worker();
    JobRecord* record = FindLeased(lease);
    if (record == nullptr) {
      *response.add_stop() = lease;
      continue;
    }
    listed.insert(record->order);
    record->lease->listed = true;
    record->lease->missing = 0;
    if (record->job.state() == v1::JOB_STATE_CANCELLING) {
      *response.add_stop() = lease;  // and not renewed: a trainer that does not stop is fenced
      continue;
    }
#ifndef OCTAVO_PLANTED_BUG_NO_LEASE_RENEWAL
    record->lease->ends = now_ + settings_.lease;
#endif
    *response.add_renewed() = lease;
  }
  ReviewUnlisted(worker, listed, &response);
  effects_.signals.push_back({request.worker(), std::move(response)});
  return absl::OkStatus();
}

// Attempts that the worker holds by our account and did not list.
void State::ReviewUnlisted(WorkerRecord* worker, const std::set<int64_t>& listed,
                           v1::SessionResponse* response) {
  const std::set<int64_t> leases =
      worker->leases;  // ending an attempt takes it out of the worker's
  for (const int64_t order : leases) {
    if (listed.count(order) > 0) continue;
    JobRecord* record = leased_.at(order);
    Lease& lease = *record->lease;
    const bool cancelling = record->job.state() == v1::JOB_STATE_CANCELLING;
    if (lease.listed && ++lease.missing > settings_.missing_heartbeats) {
      v1::Failure failure;
      failure.set_cause(v1::FAILURE_CAUSE_TRAINER_CRASHED);
      failure.set_message(absl::StrCat("worker ", worker->identity.worker_id(),
                                       " no longer has the attempt and did not say how it ended"));
      EndAttempt(record, &failure, nullptr);
    } else if (cancelling) {
      *response->add_stop() = MakeAssignment(*record).lease();
    } else if (!lease.listed && now_ < lease.assign_until) {
      // The worker counts the lease from the heartbeat that this message acknowledges, so ours
      // starts anew too.
      lease.ends = now_ + settings_.lease;
      *response->add_assignments() = MakeAssignment(*record);
    }
  }
}

void State::OnSessionClosed(const v1::WorkerIdentity& identity) {
  if (WorkerRecord* worker = FindWorker(identity); worker != nullptr) worker->connected = false;
}

}  // namespace octavo::core
