#include "server/core/fleet.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace octavo::core {
namespace {

constexpr size_t kRememberedIncarnations = 16;  // per worker id; only a late message needs one

scheduling::FreeDevice FreeDeviceOf(const WorkerRecord& worker, const v1::Device& device) {
  return {.worker_id = worker.identity.worker_id(),
          .kind = device.kind(),
          .index = device.index(),
          .memory_bytes = device.memory_bytes()};
}

}  // namespace

bool SameIdentity(const v1::WorkerIdentity& a, const v1::WorkerIdentity& b) {
  return a.worker_id() == b.worker_id() && a.incarnation() == b.incarnation();
}

void Fleet::Advance(absl::Duration now) {
  const absl::Duration silence = now - now_;
  now_ = std::max(now_, now);
  if (silence > settings_.unreachable_after) ForgivePause();
  if (now_ >= next_lapse_) LapseLeases();
  if (now_ >= next_review_) ReviewWorkers();
}

// The coordinator itself stood still: the heartbeats of that time wait unread. Longer leases are
// always safe, since a worker trusts only what it was told.
void Fleet::ForgivePause() {
  for (auto& [order, lease] : leases_) {
    if (lease.over) continue;
    lease.ends = std::max(lease.ends, now_ + settings_.lease);
    lease.assign_until = std::max(lease.assign_until, now_ + settings_.lease);
  }
  for (auto& [id, worker] : workers_) worker.last_heartbeat = now_;
}

void Fleet::LapseLeases() {
  next_lapse_ = absl::InfiniteDuration();
  for (auto& [order, lease] : leases_) {
    if (lease.over) continue;
    if (LapseOf(lease) > now_) {
      next_lapse_ = std::min(next_lapse_, LapseOf(lease));
      continue;
    }
    EndLease(
        order, v1::FAILURE_CAUSE_WORKER_LOST,
        absl::StrCat("the lease of worker ", lease.holder.worker_id(), " lapsed: not renewed for ",
                     absl::FormatDuration(settings_.lease + settings_.regrant_margin)));
  }
}

void Fleet::ReviewWorkers() {
  next_review_ = absl::InfiniteDuration();
  const absl::Duration lost_after = settings_.lease + settings_.regrant_margin;
  for (auto position = workers_.begin(); position != workers_.end();) {
    WorkerRecord& worker = position->second;
    const absl::Duration silence = now_ - worker.last_heartbeat;
    if (silence >= settings_.unreachable_after) SetConnected(&worker, false);
    if (silence >= lost_after && LeasesOf(position->first).empty()) {
      SetConnected(&worker, false);
      RemoveDevices(worker);
      replaced_.erase(position->first);
      position = workers_.erase(position);
      continue;
    }
    const absl::Duration due = worker.connected ? settings_.unreachable_after : lost_after;
    const absl::Duration next = std::max(worker.last_heartbeat + due, now_ + settings_.heartbeat);
    next_review_ = std::min(next_review_, next);
    ++position;
  }
}

void Fleet::Grant(int64_t order, Lease lease) {
  Release(order);
  next_lapse_ = std::min(next_lapse_, LapseOf(lease));
  leases_of_[lease.holder.worker_id()].insert(order);
  ++booked_[{lease.holder.worker_id(), lease.device_kind, lease.device_index}];
  const Lease& granted = leases_[order] = std::move(lease);
  RefreshFree(granted);
}

void Fleet::Release(int64_t order) {
  const auto found = leases_.find(order);
  if (found == leases_.end()) return;
  const Lease lease = std::move(found->second);
  leases_.erase(found);
  over_.erase(order);
  const auto of_worker = leases_of_.find(lease.holder.worker_id());
  of_worker->second.erase(order);
  if (of_worker->second.empty()) leases_of_.erase(of_worker);
  const auto booked =
      booked_.find({lease.holder.worker_id(), lease.device_kind, lease.device_index});
  if (--booked->second == 0) booked_.erase(booked);
  RefreshFree(lease);
}

Lease* Fleet::FindLease(int64_t order) {
  const auto found = leases_.find(order);
  return found == leases_.end() ? nullptr : &found->second;
}

const Lease* Fleet::FindLease(int64_t order) const {
  const auto found = leases_.find(order);
  return found == leases_.end() ? nullptr : &found->second;
}

void Fleet::Renew(Lease* lease) const { lease->ends = now_ + settings_.lease; }

void Fleet::EndLease(int64_t order, v1::FailureCause cause, std::string message) {
  Lease& lease = leases_.at(order);
  if (lease.over) return;
  lease.over.emplace();
  lease.over->set_cause(cause);
  lease.over->set_message(std::move(message));
  over_.insert(order);
}

const std::set<int64_t>& Fleet::LeasesOf(const std::string& worker_id) const {
  static const std::set<int64_t> kNone;
  const auto found = leases_of_.find(worker_id);
  return found == leases_of_.end() ? kNone : found->second;
}

absl::Status Fleet::AdmitIncarnation(const v1::WorkerIdentity& identity) {
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
    if (size() < settings_.max_workers) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrCat(size(), " workers are registered, the limit is ", settings_.max_workers));
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
void Fleet::EndLeasesOfFormerIncarnation(const v1::WorkerIdentity& identity) {
  for (const int64_t order : LeasesOf(identity.worker_id())) {
    if (leases_.at(order).holder.incarnation() == identity.incarnation()) continue;
    EndLease(order, v1::FAILURE_CAUSE_WORKER_LOST,
             absl::StrCat("the agent of worker ", identity.worker_id(),
                          " was started anew and its trainers ended with it"));
  }
}

absl::Status Fleet::Register(const v1::RegisterWorkerRequest& request, absl::Time wall) {
  RETURN_IF_ERROR(AdmitIncarnation(request.worker()));
  EndLeasesOfFormerIncarnation(request.worker());
  const std::string& id = request.worker().worker_id();
  if (const auto former = workers_.find(id); former != workers_.end()) {
    SetConnected(&former->second, false);
    RemoveDevices(former->second);
  }
  WorkerRecord& worker = workers_[id] = WorkerRecord();
  worker.identity = request.worker();
  worker.address = request.address();
  worker.version = request.version();
  worker.devices.assign(request.devices().begin(), request.devices().end());
  worker.last_heartbeat = now_;
  worker.last_heartbeat_time = wall;
  AddDevices(worker);
  next_review_ =
      std::min(next_review_, now_ + std::min(settings_.unreachable_after, settings_.lease));
  return absl::OkStatus();
}

WorkerRecord* Fleet::FindWorker(const v1::WorkerIdentity& identity) {
  const auto found = workers_.find(identity.worker_id());
  if (found == workers_.end() || !SameIdentity(found->second.identity, identity)) return nullptr;
  return &found->second;
}

const WorkerRecord* Fleet::FindWorker(const v1::WorkerIdentity& identity) const {
  const WorkerRecord* const worker = FindWorkerById(identity.worker_id());
  return worker != nullptr && SameIdentity(worker->identity, identity) ? worker : nullptr;
}

const WorkerRecord* Fleet::FindWorkerById(const std::string& worker_id) const {
  const auto found = workers_.find(worker_id);
  return found == workers_.end() ? nullptr : &found->second;
}

void Fleet::Hear(WorkerRecord* worker, int64_t sequence, absl::Time wall) {
  worker->sequence = sequence;
  worker->last_heartbeat = now_;
  worker->last_heartbeat_time = wall;
  SetConnected(worker, true);
  next_review_ = std::min(next_review_, now_ + settings_.unreachable_after);
}

void Fleet::Disconnect(WorkerRecord* worker) { SetConnected(worker, false); }

std::vector<const WorkerRecord*> Fleet::List(const std::string& after, int64_t limit) const {
  std::vector<const WorkerRecord*> records;
  for (auto worker = workers_.upper_bound(after);
       worker != workers_.end() && static_cast<int64_t>(records.size()) < limit; ++worker) {
    records.push_back(&worker->second);
  }
  return records;
}

std::optional<int64_t> Fleet::LargestDevice(const std::string& kind) const {
  const auto found = sizes_.find(kind);
  if (found == sizes_.end()) return std::nullopt;
  return *found->second.rbegin();
}

void Fleet::SetConnected(WorkerRecord* worker, bool connected) {
  if (worker->connected == connected) return;
  worker->connected = connected;
  connected_ += connected ? 1 : -1;
  for (const v1::Device& device : worker->devices) RefreshFree(*worker, device);
}

void Fleet::AddDevices(const WorkerRecord& worker) {
  for (const v1::Device& device : worker.devices) {
    sizes_[device.kind()].insert(device.memory_bytes());
    RefreshFree(worker, device);
  }
}

void Fleet::RemoveDevices(const WorkerRecord& worker) {
  for (const v1::Device& device : worker.devices) {
    free_.Remove(FreeDeviceOf(worker, device));
    const auto sizes = sizes_.find(device.kind());
    sizes->second.erase(sizes->second.find(device.memory_bytes()));
    if (sizes->second.empty()) sizes_.erase(sizes);
  }
}

void Fleet::RefreshFree(const WorkerRecord& worker, const v1::Device& device) {
  const bool booked =
      booked_.count({worker.identity.worker_id(), device.kind(), device.index()}) > 0;
  if (worker.connected && !booked) {
    free_.Add(FreeDeviceOf(worker, device));
  } else {
    free_.Remove(FreeDeviceOf(worker, device));
  }
}

void Fleet::RefreshFree(const Lease& lease) {
  const auto found = workers_.find(lease.holder.worker_id());
  if (found == workers_.end()) return;
  for (const v1::Device& device : found->second.devices) {
    const bool same = device.kind() == lease.device_kind && device.index() == lease.device_index;
    if (same) RefreshFree(found->second, device);
  }
}

}  // namespace octavo::core
