// How long each attempt may still run, by this machine's monotonic clock.
//
// A renewal that the coordinator sends in answer to a heartbeat holds for the length of a lease
// from when that heartbeat was *sent*: the coordinator counted from when it arrived, which is
// later. So the worker's end of a lease is never after the coordinator's, whatever the network
// delays.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "octavo/v1/worker.pb.h"

namespace octavo::agent {

struct LeaseKey {
  std::string job_id;
  int64_t epoch = 0;
  auto operator<=>(const LeaseKey&) const = default;
};
LeaseKey KeyOf(const v1::LeaseIdentity& lease);

// Not thread-safe. `now` never goes back.
class LeaseTable {
 public:
  // Lengths as the coordinator announced them; those of leases that run already keep theirs until
  // the next renewal.
  void Configure(absl::Duration lease, absl::Duration margin);

  // A registration counts as heartbeat `sequence` that is acknowledged with its answer.
  void Registered(int64_t sequence, absl::Duration sent);
  void HeartbeatSent(int64_t sequence, absl::Duration now);
  // Later acknowledgements only; heartbeats of the past are forgotten.
  void Acknowledged(int64_t sequence);

  // An assignment arrived: it was made after the newest acknowledged heartbeat was sent.
  void Grant(const LeaseKey& key);
  // As of the newest acknowledged heartbeat. Unknown leases are ignored.
  void Renew(const LeaseKey& key);
  void Remove(const LeaseKey& key) { stop_at_.erase(key); }

  // Leases whose end less the margin is not after `now`, in order of their keys.
  std::vector<LeaseKey> Lapsed(absl::Duration now) const;
  // Earliest time at which Lapsed changes; infinite without leases.
  absl::Duration NextLapse() const;

 private:
  absl::Duration lease_ = absl::Seconds(15);
  absl::Duration margin_ = absl::Seconds(3);
  std::map<int64_t, absl::Duration> sent_;  // by sequence; not acknowledged yet
  absl::Duration acknowledged_sent_ = -absl::InfiniteDuration();
  int64_t acknowledged_ = -1;
  std::map<LeaseKey, absl::Duration> stop_at_;
};

}  // namespace octavo::agent
