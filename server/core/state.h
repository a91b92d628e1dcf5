// The one implementation of Core. Its methods are spread over files by resource:
//   state.cc        Apply and reads        submits.cc      SubmitJob, CancelJob
//   time.cc         what time alone does   workers.cc      registration and heartbeats
//   attempts.cc     begin and end of one   facts.cc        what trainers report under a lease
//   placement.cc    pending jobs           restore.cc      Create
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/core/core.h"
#include "server/scheduling/plan.h"

namespace octavo::core {

// What the coordinator grants to an attempt. Not durable: after a restart every lease starts anew.
struct Lease {
  absl::Duration ends;          // re-granted only regrant_margin later
  absl::Duration assign_until;  // until then an attempt that was never listed is assigned again
  bool listed = false;          // the worker said that it has the attempt
  int missing = 0;              // heartbeats in a row without it, once listed
};

struct JobRecord {
  v1::Job job;
  int64_t order = 0;
  std::optional<Lease> lease;  // exactly while RUNNING or CANCELLING
  absl::Duration not_before;   // of the next attempt
  std::optional<LogCursor> log;
  bool touched = false;  // in the event being applied
};

struct WorkerRecord {
  v1::WorkerIdentity identity;
  std::string address;
  std::string version;
  std::vector<v1::Device> devices;
  absl::Duration last_heartbeat;  // or registration
  absl::Time last_heartbeat_time;
  int64_t sequence = 0;      // of the newest heartbeat
  bool connected = false;    // a heartbeat came over the present session, lately
  std::set<int64_t> leases;  // orders of the jobs that hold one here
};

class State final : public Core {
 public:
  State(const Settings& settings, absl::Duration now) : settings_(settings), now_(now) {}
  void Restore(DurableState state, absl::Time wall);

  Effects Apply(const Event& event, absl::Time wall, absl::Duration now) override;
  const v1::Job* FindJob(const std::string& job_id) const override;
  std::vector<JobEntry> ListJobs(int64_t before, int64_t limit,
                                 const std::vector<v1::JobState>& states) const override;
  std::vector<v1::Worker> ListWorkers() const override;
  const Counters& counters() const override { return counters_; }

 private:
  using AnswerOr = absl::StatusOr<AnswerBody>;

  // state.cc
  void Dispatch(const Event& event);
  void Touch(JobRecord* record);
  void AnswerWithJob(Token token, JobRecord* record);
  void FlushTouched();

  // submits.cc
  absl::Status Submit(const SubmitJob& event, Token token);
  absl::Status Cancel(const CancelJob& event, Token token);

  // workers.cc
  AnswerOr Register(const v1::RegisterWorkerRequest& request);
  absl::Status AdmitIncarnation(const v1::WorkerIdentity& identity);
  void DropLeasesOfFormerIncarnation(const v1::WorkerIdentity& identity);
  absl::Status OnHeartbeat(const v1::SessionRequest& request);
  void ReviewUnlisted(WorkerRecord* worker, const std::set<int64_t>& listed,
                      v1::SessionResponse* response);
  void OnSessionClosed(const v1::WorkerIdentity& identity);
  WorkerRecord* FindWorker(const v1::WorkerIdentity& identity);  // null unless registered so

  // attempts.cc
  void BeginAttempt(JobRecord* record, WorkerRecord* worker, int32_t device_index);
  void EndAttempt(JobRecord* record, const v1::Failure* failure, const v1::RunReport* report);
  void Retry(JobRecord* record, const v1::Failure& failure);
  void Requeue(JobRecord* record);
  absl::Duration Backoff(const v1::Job& job) const;
  v1::Assignment MakeAssignment(const JobRecord& record) const;
  JobRecord* FindLeased(const v1::LeaseIdentity& lease);  // null unless it is the present holder

  // facts.cc
  absl::Status Fenced(const v1::LeaseIdentity& lease);
  AnswerOr Started(const v1::ReportAttemptStartedRequest& request);
  AnswerOr Finished(const v1::ReportAttemptFinishedRequest& request);
  AnswerOr Begin(const v1::BeginCheckpointRequest& request);
  AnswerOr Commit(const v1::CommitCheckpointRequest& request);
  AnswerOr Metrics(const v1::PushMetricsRequest& request);
  AnswerOr Logs(const v1::PushLogsRequest& request);
  void AppendLines(const v1::PushLogsRequest& request, LogCursor* cursor, PutLogs* write);

  // time.cc
  void Advance();
  void ForgivePause();
  void LapseLeases();
  void ReviewWorkers();
  absl::Duration LapseOf(const Lease& lease) const { return lease.ends + settings_.regrant_margin; }

  // placement.cc
  // Higher priority first, then earlier submission.
  using ReadyKey = std::pair<int64_t, int64_t>;  // -priority, order
  static ReadyKey KeyOf(const JobRecord& record);
  void Place();
  void PlaceWhileDevicesAreFree(std::vector<scheduling::DeviceState>* devices);
  void PlaceThese(const std::vector<ReadyKey>& keys, std::vector<scheduling::DeviceState>* devices);
  std::vector<scheduling::DeviceState> Devices() const;
  void AddReady(JobRecord* record);
  int64_t PendingCount() const { return static_cast<int64_t>(ready_.size() + backing_off_.size()); }
  void RemovePending(JobRecord* record);

  JobRecord* Find(const std::string& job_id);
  v1::WorkerIdentity HolderOf(const v1::Job& job) const;

  const Settings settings_;
  absl::Duration now_;
  absl::Time wall_;
  Effects effects_;                                        // of the event being applied
  std::vector<JobRecord*> touched_;                        // in the event being applied
  std::vector<std::pair<Token, JobRecord*>> job_answers_;  // given once versions are final

  std::unordered_map<std::string, JobRecord> jobs_;
  std::map<int64_t, JobRecord*> by_order_;
  std::unordered_map<std::string, PutRequest> requests_;
  std::map<int64_t, JobRecord*> leased_;
  std::set<std::pair<absl::Duration, int64_t>> backing_off_;  // pending, not to be placed before
  std::set<ReadyKey> ready_;                                  // pending, in the order of service
  std::set<ReadyKey> unplanned_;  // of those, not yet held against the fleet as it is
  bool fleet_changed_ = false;    // a device came, went or fell free
  std::map<std::string, int64_t> largest_bytes_;  // by device kind; reasons speak of it

  std::map<std::string, WorkerRecord> workers_;
  // Incarnations that another one replaced: a late message of theirs must not replace it in turn.
  std::map<std::string, std::deque<std::string>> replaced_;

  // No lease lapses, no worker changes state before these times: lower bounds, so that time costs
  // nothing in most events.
  absl::Duration next_lapse_ = absl::InfiniteDuration();
  absl::Duration next_worker_review_ = absl::InfiniteDuration();
  Counters counters_;
};

google::protobuf::Timestamp ToTimestamp(absl::Time time);

}  // namespace octavo::core
