// What workers say of themselves: it moves leases and free devices, and never a job.
#include <set>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "server/core/core.h"
#include "server/core/decision.h"

namespace octavo::core {

// The lease of that identity, null unless it is granted so and not over.
Lease* Core::FindHeld(const v1::LeaseIdentity& identity, JobPointer* record) {
  *record = jobs_.Find(identity.job_id());
  if (*record == nullptr) return nullptr;
  Lease* const lease = fleet_.FindLease((*record)->order);
  return Holds(identity, lease) ? lease : nullptr;
}

absl::Status Core::Fenced(const v1::LeaseIdentity& lease) {
  ++counters_.fenced;
  const JobPointer record = jobs_.Find(lease.job_id());
  return FencedError(lease, record == nullptr ? nullptr : &record->job);
}

v1::Assignment Core::AssignmentOf(const JobRecord& record) const {
  return MakeAssignment(record.job, jobs_.Find(BaselineOf(record.job)));
}

Core::AnswerOr Core::Take(const RegisterWorker& body, const Moment& moment, std::vector<Signal>*) {
  const v1::RegisterWorkerRequest& request = body.request;
  RETURN_IF_ERROR(fleet_.Register(request, moment.wall));
  v1::RegisterWorkerResponse response;
  response.set_heartbeat_ms(absl::ToInt64Milliseconds(settings_.heartbeat));
  response.set_lease_ms(absl::ToInt64Milliseconds(settings_.lease));
  response.set_lease_margin_ms(absl::ToInt64Milliseconds(settings_.lease_margin));
  for (v1::LeaseIdentity identity : request.running()) {
    *identity.mutable_worker() = request.worker();
    JobPointer record;
    Lease* const lease = FindHeld(identity, &record);
    if (lease == nullptr) continue;
    lease->listed = true;
    lease->missing = 0;
    *response.add_keep() = identity;
  }
  return AnswerBody(std::move(response));
}

Core::AnswerOr Core::Take(const Heartbeat& body, const Moment& moment,
                          std::vector<Signal>* signals) {
  const v1::SessionRequest& request = body.request;
  WorkerRecord* const worker = fleet_.FindWorker(request.worker());
  if (worker == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("incarnation ", request.worker().incarnation(), " of worker ",
                     request.worker().worker_id(), " is not registered; call RegisterWorker"));
  }
  if (request.sequence() <= worker->sequence) return AnswerBody();  // overtaken by a newer one
  fleet_.Hear(worker, request.sequence(), moment.wall);

  v1::SessionResponse response;
  response.set_acknowledged_sequence(request.sequence());
  std::set<int64_t> listed;
  for (v1::LeaseIdentity identity : request.running()) {
    *identity.mutable_worker() = request.worker();
    JobPointer record;
    Lease* const lease = FindHeld(identity, &record);
    if (lease == nullptr) {
      *response.add_stop() = identity;
      continue;
    }
    listed.insert(record->order);
    lease->listed = true;
    lease->missing = 0;
    if (lease->cancelling) {
      *response.add_stop() = identity;  // and not renewed: a trainer that does not stop is fenced
      continue;
    }
    fleet_.Renew(lease);
    *response.add_renewed() = identity;
  }
  ReviewUnlisted(*worker, listed, &response);
  signals->push_back({request.worker(), std::move(response)});
  return AnswerBody();
}

// Attempts that the worker holds by our account and did not list.
void Core::ReviewUnlisted(const WorkerRecord& worker, const std::set<int64_t>& listed,
                          v1::SessionResponse* response) {
  for (const int64_t order : fleet_.LeasesOf(worker.identity.worker_id())) {
    Lease& lease = *fleet_.FindLease(order);
    if (listed.count(order) > 0 || lease.over || !SameIdentity(lease.holder, worker.identity)) {
      continue;
    }
    const JobPointer record = jobs_.Find(order);
    if (lease.listed && ++lease.missing > settings_.missing_heartbeats) {
      fleet_.EndLease(order, v1::FAILURE_CAUSE_TRAINER_CRASHED,
                      absl::StrCat("worker ", worker.identity.worker_id(),
                                   " no longer has the attempt and did not say how it ended"));
    } else if (lease.cancelling) {
      *response->add_stop() = LeaseIdentityOf(record->job);
    } else if (!lease.listed && fleet_.now() < lease.assign_until) {
      // The worker counts the lease from the heartbeat that this message acknowledges, so ours
      // starts anew too.
      fleet_.Renew(&lease);
      *response->add_assignments() = AssignmentOf(*record);
    }
  }
}

Core::AnswerOr Core::Take(const SessionClosed& body, const Moment&, std::vector<Signal>*) {
  if (WorkerRecord* worker = fleet_.FindWorker(body.worker); worker != nullptr) {
    fleet_.Disconnect(worker);
  }
  return AnswerBody();
}

Core::AnswerOr Core::Take(const v1::ReportAttemptStartedRequest& body, const Moment&,
                          std::vector<Signal>*) {
  JobPointer record;
  Lease* const lease = FindHeld(body.lease(), &record);
  if (lease == nullptr) return Fenced(body.lease());
  lease->listed = true;
  return AnswerBody();
}

Core::AnswerOr Core::Take(const v1::BeginCheckpointRequest& body, const Moment&,
                          std::vector<Signal>*) {
  JobPointer record;
  if (FindHeld(body.lease(), &record) == nullptr) return Fenced(body.lease());
  const v1::Job& job = record->job;
  if (body.step() < job.checkpoint().step()) {
    return absl::InvalidArgumentError(absl::StrCat("checkpoint of step ", body.step(),
                                                   " would lie before the committed step ",
                                                   job.checkpoint().step(), " of ", job.id()));
  }
  for (const v1::Checkpoint& committed : job.checkpoints()) {
    if (committed.folder() == body.folder()) {
      return absl::AlreadyExistsError(absl::StrCat("folder ", body.folder(),
                                                   " already holds the committed step ",
                                                   committed.step(), " of ", job.id()));
    }
  }
  return AnswerBody();
}

}  // namespace octavo::core
