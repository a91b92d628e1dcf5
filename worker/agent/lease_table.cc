#include "worker/agent/lease_table.h"

#include <algorithm>

namespace octavo::agent {
namespace {

// Heartbeats that may wait for their answer. A coordinator that is silent for longer has lost the
// session anyway.
constexpr size_t kMaxUnacknowledged = 1024;

}  // namespace

LeaseKey KeyOf(const v1::LeaseIdentity& lease) { return {lease.job_id(), lease.epoch()}; }

void LeaseTable::Configure(absl::Duration lease, absl::Duration margin) {
  lease_ = lease;
  margin_ = margin;
}

void LeaseTable::Registered(int64_t sequence, absl::Duration sent) {
  sent_[sequence] = sent;
  Acknowledged(sequence);
}

void LeaseTable::HeartbeatSent(int64_t sequence, absl::Duration now) {
  sent_[sequence] = now;
  if (sent_.size() > kMaxUnacknowledged) sent_.erase(sent_.begin());
}

void LeaseTable::Acknowledged(int64_t sequence) {
  const auto sent = sent_.find(sequence);
  if (sequence <= acknowledged_ || sent == sent_.end()) return;
  acknowledged_ = sequence;
  acknowledged_sent_ = sent->second;
  sent_.erase(sent_.begin(), std::next(sent));
}

void LeaseTable::Grant(const LeaseKey& key) {
  stop_at_[key] = acknowledged_sent_ + lease_ - margin_;
}

void LeaseTable::Renew(const LeaseKey& key) {
  const auto found = stop_at_.find(key);
  if (found != stop_at_.end()) found->second = acknowledged_sent_ + lease_ - margin_;
}

std::vector<LeaseKey> LeaseTable::Lapsed(absl::Duration now) const {
  std::vector<LeaseKey> lapsed;
  for (const auto& [key, stop_at] : stop_at_) {
    if (stop_at <= now) lapsed.push_back(key);
  }
  return lapsed;
}

absl::Duration LeaseTable::NextLapse() const {
  absl::Duration next = absl::InfiniteDuration();
  for (const auto& [key, stop_at] : stop_at_) next = std::min(next, stop_at);
  return next;
}

}  // namespace octavo::agent
