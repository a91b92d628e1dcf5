// A coordinator and workers of one test, in a folder of its own.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "octavo/v1/job.grpc.pb.h"
#include "octavo/v1/log.grpc.pb.h"
#include "octavo/v1/metric.grpc.pb.h"
#include "octavo/v1/node.grpc.pb.h"
#include "proto/support/job_state.h"
#include "tests/endtoend/process.h"
#include "tests/support/temporary_folder.h"

namespace octavo::endtoend {

class Cluster {
 public:
  Cluster();
  // Ends every process; the test fails if a trainer is left.
  ~Cluster();

  // Starts it, or starts it again at the same address, and waits until it answers.
  void StartCoordinator();
  struct WorkerOptions {
    std::string id = "worker-1";
    int64_t file_bytes = 0;  // RLIMIT_FSIZE
    int64_t memory_bytes = 1 << 30;
  };
  // Waits until it is connected.
  void StartWorker(const WorkerOptions& options);
  void StartWorker() { StartWorker(WorkerOptions()); }
  Process& coordinator() { return *coordinator_; }
  Process& worker(const std::string& id = "worker-1") { return *workers_.at(id); }

  // A tiny FP8 job that takes a second or two: a random llama of two layers over a text of its own.
  v1::JobSpec TinyJob(int64_t steps) const;
  // Writes a file below folder() and returns its path.
  std::string Write(const std::string& name, const std::string& content) const;
  const std::string& folder() const { return folder_; }

  absl::StatusOr<v1::Job> TrySubmit(const v1::JobSpec& spec);
  std::string Submit(const v1::JobSpec& spec);  // the job's id; the test fails if it is refused
  absl::StatusOr<v1::ValidateJobResponse> Validate(const v1::JobSpec& spec);
  void Cancel(const std::string& id);
  v1::Job Get(const std::string& id);
  // The job once `wanted` holds; the test fails when it does not in time.
  v1::Job Await(const std::string& id, const std::function<bool(const v1::Job&)>& wanted);
  v1::Job AwaitEnd(const std::string& id);
  // Waits until the metrics of the job hold a step of at least `step`, or it has ended.
  void AwaitStep(const std::string& id, int64_t step);
  std::vector<std::string> Logs(const std::string& id);
  std::vector<v1::MetricPoint> LossPoints(const std::string& id);
  // Training loss by step.
  std::map<int64_t, double> Losses(const std::string& id);

  std::vector<int> Trainers() const;

 private:
  std::string LogOf(const std::string& name) const { return folder_ + "/" + name + ".log"; }
  void PrintLogs() const;
  [[noreturn]] void Abandon(const std::string& why) const;

  const testing_support::TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
  std::string address_;
  std::unique_ptr<Process> coordinator_;
  std::map<std::string, std::unique_ptr<Process>> workers_;
  std::unique_ptr<v1::JobService::Stub> jobs_;
  std::unique_ptr<v1::MetricService::Stub> metrics_;
  std::unique_ptr<v1::LogService::Stub> logs_;
  std::unique_ptr<v1::NodeService::Stub> nodes_;
};

}  // namespace octavo::endtoend
