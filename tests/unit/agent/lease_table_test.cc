#include "worker/agent/lease_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/clock.h"

namespace octavo::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const LeaseKey kLease = {"job-a", 1};

// Leases of 15 s that are stopped 3 s before their end.
class LeaseTableTest : public ::testing::Test {
 protected:
  LeaseTableTest() {
    table_.Configure(absl::Seconds(15), absl::Seconds(3));
    table_.Registered(1, clock_.Monotonic());
  }
  void AdvanceTo(int seconds) { clock_.Advance(absl::Seconds(seconds) - clock_.Monotonic()); }
  std::vector<LeaseKey> Lapsed() const { return table_.Lapsed(clock_.Monotonic()); }

  SimulatedClock clock_;
  LeaseTable table_;
};

TEST_F(LeaseTableTest, AnUnrenewedLeaseIsStoppedAMarginBeforeItsEnd) {
  table_.Grant(kLease);
  clock_.Advance(absl::Seconds(12) - absl::Milliseconds(1));
  EXPECT_THAT(Lapsed(), IsEmpty());
  clock_.Advance(absl::Milliseconds(1));
  EXPECT_THAT(Lapsed(), ElementsAre(kLease));
}

TEST_F(LeaseTableTest, ARenewalCountsFromWhenTheHeartbeatWasSentNotFromItsAnswer) {
  table_.Grant(kLease);
  AdvanceTo(5);
  table_.HeartbeatSent(2, clock_.Monotonic());
  AdvanceTo(11);  // the answer took 6 s
  table_.Acknowledged(2);
  table_.Renew(kLease);
  EXPECT_EQ(table_.NextLapse(), absl::Seconds(5 + 12));
}

TEST_F(LeaseTableTest, AnAssignmentCountsFromTheNewestAcknowledgedHeartbeat) {
  AdvanceTo(4);
  table_.HeartbeatSent(2, clock_.Monotonic());
  AdvanceTo(5);
  table_.HeartbeatSent(3, clock_.Monotonic());
  table_.Acknowledged(2);
  table_.Grant(kLease);
  EXPECT_EQ(table_.NextLapse(), absl::Seconds(4 + 12));
}

TEST_F(LeaseTableTest, AnOldAcknowledgementDoesNotTurnTimeBack) {
  table_.Grant(kLease);
  AdvanceTo(1);
  table_.HeartbeatSent(2, clock_.Monotonic());
  AdvanceTo(2);
  table_.HeartbeatSent(3, clock_.Monotonic());
  table_.Acknowledged(3);
  table_.Renew(kLease);
  table_.Acknowledged(2);
  table_.Renew(kLease);
  EXPECT_EQ(table_.NextLapse(), absl::Seconds(2 + 12));
}

TEST_F(LeaseTableTest, AHeartbeatThatWasNeverAnsweredRenewsNothing) {
  table_.Grant(kLease);
  AdvanceTo(11);
  table_.HeartbeatSent(2, clock_.Monotonic());
  table_.Renew(kLease);  // without an acknowledgement the first heartbeat still counts
  AdvanceTo(12);
  EXPECT_THAT(Lapsed(), ElementsAre(kLease));
}

TEST_F(LeaseTableTest, ALeaseThatIsNotListedAsRenewedLapses) {
  const LeaseKey other = {"job-b", 4};
  table_.Grant(kLease);
  table_.Grant(other);
  AdvanceTo(6);
  table_.HeartbeatSent(2, clock_.Monotonic());
  table_.Acknowledged(2);
  table_.Renew(other);
  AdvanceTo(12);
  EXPECT_THAT(Lapsed(), ElementsAre(kLease));
}

TEST_F(LeaseTableTest, ARemovedLeaseIsNotRevivedByARenewal) {
  table_.Grant(kLease);
  table_.Remove(kLease);
  table_.Renew(kLease);
  EXPECT_EQ(table_.NextLapse(), absl::InfiniteDuration());
}

}  // namespace
}  // namespace octavo::agent
