// Workers, their devices and the leases that attempts hold there. None of it is durable: it follows
// from what workers say and from the committed jobs, and no failed write touches it. After a start
// it knows the leases of the stored jobs, each begun anew, and no worker until it registers.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/core/events.h"
#include "server/core/settings.h"
#include "server/scheduling/plan.h"

namespace octavo::core {

// What the coordinator grants to an attempt: exactly while its job is RUNNING or CANCELLING.
struct Lease {
  std::string job_id;
  int64_t epoch = 0;
  v1::WorkerIdentity holder;
  std::string device_kind;
  int32_t device_index = 0;
  absl::Duration ends;          // re-granted only regrant_margin later
  absl::Duration assign_until;  // until then an attempt that was never listed is assigned again
  bool listed = false;          // the worker said that it has the attempt
  int missing = 0;              // heartbeats in a row without it, once listed
  bool cancelling = false;
  // Why the attempt ends without a word of its worker. Such a lease is neither renewed nor does it
  // let a fact pass; it holds its device until the end is durable.
  std::optional<v1::Failure> over;
};

struct WorkerRecord {
  v1::WorkerIdentity identity;
  std::string address;
  std::string version;
  std::vector<v1::Device> devices;
  absl::Duration last_heartbeat;  // or registration
  absl::Time last_heartbeat_time;
  int64_t sequence = -1;   // of the newest heartbeat
  bool connected = false;  // a heartbeat came over the present session, lately
};

class Fleet {
 public:
  Fleet(const Settings& settings, absl::Duration now) : settings_(settings), now_(now) {}

  // Time passes: leases lapse, silent workers become unreachable and are forgotten. If more than
  // Settings::unreachable_after passed since the last call, the coordinator itself stood still and
  // every lease starts anew. O(1) until something is due.
  void Advance(absl::Duration now);

  // Leases, by their job's order.
  void Grant(int64_t order, Lease lease);
  void Release(int64_t order);
  Lease* FindLease(int64_t order);
  const Lease* FindLease(int64_t order) const;
  void Renew(Lease* lease) const;
  void EndLease(int64_t order, v1::FailureCause cause, std::string message);
  const std::set<int64_t>& over() const { return over_; }
  // Held by the worker id, by whichever incarnation.
  const std::set<int64_t>& LeasesOf(const std::string& worker_id) const;

  // Workers. FAILED_PRECONDITION for a replaced incarnation, UNAVAILABLE while another one is
  // heard, RESOURCE_EXHAUSTED beyond max_workers.
  absl::Status Register(const v1::RegisterWorkerRequest& request, absl::Time wall);
  // Null unless that incarnation is registered.
  WorkerRecord* FindWorker(const v1::WorkerIdentity& identity);
  const WorkerRecord* FindWorker(const v1::WorkerIdentity& identity) const;
  const WorkerRecord* FindWorkerById(const std::string& worker_id) const;
  void Hear(WorkerRecord* worker, int64_t sequence, absl::Time wall);
  void Disconnect(WorkerRecord* worker);
  // By id, beyond `after`, at most `limit`.
  std::vector<const WorkerRecord*> List(const std::string& after, int64_t limit) const;
  int64_t size() const { return static_cast<int64_t>(workers_.size()); }
  int64_t connected() const { return connected_; }

  // Of connected workers and under no lease.
  const scheduling::FreeDevices& free_devices() const { return free_; }
  // Of the registered devices of the kind; none: there is no such device.
  std::optional<int64_t> LargestDevice(const std::string& kind) const;

  absl::Duration now() const { return now_; }

 private:
  using DeviceKey = std::tuple<std::string, std::string, int32_t>;  // worker id, kind, index

  absl::Status AdmitIncarnation(const v1::WorkerIdentity& identity);
  void EndLeasesOfFormerIncarnation(const v1::WorkerIdentity& identity);
  void ForgivePause();
  void LapseLeases();
  void ReviewWorkers();
  absl::Duration LapseOf(const Lease& lease) const { return lease.ends + settings_.regrant_margin; }
  void SetConnected(WorkerRecord* worker, bool connected);
  void AddDevices(const WorkerRecord& worker);
  void RemoveDevices(const WorkerRecord& worker);
  void RefreshFree(const WorkerRecord& worker, const v1::Device& device);
  void RefreshFree(const Lease& lease);

  const Settings settings_;
  absl::Duration now_;
  std::map<std::string, WorkerRecord> workers_;
  int64_t connected_ = 0;
  // Incarnations that another one replaced: a late message of theirs must not replace it in turn.
  std::map<std::string, std::deque<std::string>> replaced_;
  std::map<int64_t, Lease> leases_;
  std::map<std::string, std::set<int64_t>> leases_of_;  // by worker id; no set is empty
  std::set<int64_t> over_;                              // leases that are over
  std::map<DeviceKey, int> booked_;                     // leases on the device
  scheduling::FreeDevices free_;
  std::map<std::string, std::multiset<int64_t>> sizes_;  // of registered devices; none is empty

  // No lease lapses, no worker changes state before these times: lower bounds, so that time costs
  // nothing in most events.
  absl::Duration next_lapse_ = absl::InfiniteDuration();
  absl::Duration next_review_ = absl::InfiniteDuration();
};

bool SameIdentity(const v1::WorkerIdentity& a, const v1::WorkerIdentity& b);

}  // namespace octavo::core
