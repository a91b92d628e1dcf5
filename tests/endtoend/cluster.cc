#include "tests/endtoend/cluster.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "base/file.h"

namespace octavo::endtoend {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kStart = absl::Seconds(20);
constexpr absl::Duration kEnd = absl::Seconds(120);

std::string Program(const std::string& name) {
  return absl::StrCat(OCTAVO_BINARY_DIR, "/bin/", name);
}

constexpr const char* kConfig = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
  "vocab_size": 260, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
  "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "initializer_range": 0.02,
  "bos_token_id": 256, "eos_token_id": 256, "tie_word_embeddings": true
})";

// Sums, one a line: a text that a small model can learn something of.
std::string SumsText() {
  std::string text;
  for (int i = 0; i < 2000; ++i) {
    const int a = i * 37 % 100;
    const int b = i * 61 % 100;
    absl::StrAppend(&text, a, "+", b, "=", a + b, "\n");
  }
  return text;
}

absl::Status FromGrpc(const grpc::Status& status) {
  return {static_cast<absl::StatusCode>(status.error_code()), status.error_message()};
}

void Bound(grpc::ClientContext* context) {
  context->set_wait_for_ready(true);  // a coordinator may be starting again
  context->set_deadline(gpr_time_from_millis(30000, GPR_TIMESPAN));
}

}  // namespace

Cluster::Cluster() {
  Write("model/config.json", kConfig);
  Write("sums.txt", SumsText());
}

Cluster::~Cluster() {
  for (auto& [id, worker] : workers_) worker->Signal(SIGTERM);
  for (auto& [id, worker] : workers_) {
    const int status = worker->running() ? worker->AwaitExit(absl::Seconds(15)) : 0;
    EXPECT_EQ(status, 0) << id << " did not shut down";
  }
  workers_.clear();
  coordinator_.reset();
  EXPECT_TRUE(Eventually(absl::Seconds(5), [this] { return Trainers().empty(); }))
      << "a trainer outlived its worker";
  for (const int trainer : Trainers()) kill(trainer, SIGKILL);
  if (::testing::Test::HasFailure()) PrintLogs();
}

void Cluster::PrintLogs() const {
  for (const auto& entry : fs::directory_iterator(folder_)) {
    if (entry.path().extension() != ".log") continue;
    const auto text = ReadFile(entry.path().string(), 64 << 20);
    if (!text.ok()) continue;
    std::cout << "--- end of " << entry.path().filename().string() << "\n"
              << text->substr(text->size() > 4000 ? text->size() - 4000 : 0);
  }
}

std::string Cluster::Write(const std::string& name, const std::string& content) const {
  const std::string path = absl::StrCat(folder_, "/", name);
  EXPECT_TRUE(MakeFolders(fs::path(path).parent_path().string()).ok());
  EXPECT_TRUE(WriteFileAtomically(path, content).ok());
  return path;
}

void Cluster::StartCoordinator() {
  const std::string addresses = folder_ + "/coordinator/addresses.json";
  std::error_code error;
  fs::remove(addresses, error);
  coordinator_ = std::make_unique<Process>(Process::Options{
      .arguments = {Program("octavod"), "--data-dir", folder_ + "/coordinator", "--listen",
                    address_.empty() ? "127.0.0.1:0" : address_, "--metrics-listen", "",
                    "--heartbeat", "100ms", "--lease", "4s", "--lease-margin", "1s", "--tick",
                    "50ms", "--regrant-margin", "500ms", "--retry-backoff", "100ms"},
      .log = LogOf("octavod"),
      .file_bytes = 0});
  const bool started = Eventually(kStart, [&] {
    const auto text = ReadFile(addresses, 4096);
    if (text.ok()) address_ = nlohmann::json::parse(*text).at("grpc");
    return text.ok() || !coordinator_->running();
  });
  if (!started || !coordinator_->running()) Abandon("octavod did not start");
  if (jobs_ != nullptr) return;
  const auto channel = grpc::CreateChannel(address_, grpc::InsecureChannelCredentials());
  jobs_ = v1::JobService::NewStub(channel);
  metrics_ = v1::MetricService::NewStub(channel);
  logs_ = v1::LogService::NewStub(channel);
  nodes_ = v1::NodeService::NewStub(channel);
}

void Cluster::StartWorker(const WorkerOptions& options) {
  workers_[options.id] = std::make_unique<Process>(Process::Options{
      .arguments = {Program("octavo-worker"), "--server", address_, "--work-dir",
                    absl::StrCat(folder_, "/", options.id), "--worker-id", options.id, "--memory",
                    absl::StrCat(options.memory_bytes), "--threads", "1"},
      .log = LogOf(options.id),
      .file_bytes = options.file_bytes});
  const bool connected = Eventually(kStart, [&] {
    grpc::ClientContext context;
    Bound(&context);
    v1::ListWorkersResponse response;
    if (!nodes_->ListWorkers(&context, {}, &response).ok()) return false;
    for (const v1::Worker& worker : response.workers()) {
      if (worker.id() == options.id && worker.state() == v1::WORKER_STATE_CONNECTED) return true;
    }
    return !workers_[options.id]->running();
  });
  if (!connected || !workers_[options.id]->running()) Abandon(options.id + " did not connect");
}

// Nothing that a test expects can come any more; GoogleTest reports it as that test's failure.
void Cluster::Abandon(const std::string& why) const {
  PrintLogs();
  throw std::runtime_error(why);
}

v1::JobSpec Cluster::TinyJob(int64_t steps) const {
  v1::JobSpec spec;
  spec.set_name("tiny");
  spec.set_output_folder(folder_ + "/out");
  v1::Stage* stage = spec.add_stages();
  stage->set_kind("cpt");
  stage->set_steps(steps);
  stage->set_seed(7);
  stage->mutable_model()->set_folder(folder_ + "/model");
  stage->mutable_model()->set_initialisation("random");
  stage->mutable_data()->add_files(folder_ + "/sums.txt");
  stage->mutable_data()->set_document_separator("\n");
  stage->mutable_data()->set_tokenizer("byte");
  stage->mutable_data()->set_sequence_length(64);
  stage->mutable_optimizer()->set_learning_rate(2e-3);
  stage->mutable_batch()->set_micro_batch(4);
  stage->mutable_evaluation()->set_holdout_tokens(256);
  return spec;
}

absl::StatusOr<v1::Job> Cluster::TrySubmit(const v1::JobSpec& spec) {
  v1::SubmitJobRequest request;
  request.set_request_id(RandomHex(8));
  *request.mutable_spec() = spec;
  v1::Job job;
  grpc::ClientContext context;
  Bound(&context);
  const grpc::Status status = jobs_->SubmitJob(&context, request, &job);
  if (!status.ok()) return FromGrpc(status);
  return job;
}

std::string Cluster::Submit(const v1::JobSpec& spec) {
  const auto job = TrySubmit(spec);
  EXPECT_TRUE(job.ok()) << job.status();
  return job.ok() ? job->id() : "";
}

absl::StatusOr<v1::ValidateJobResponse> Cluster::Validate(const v1::JobSpec& spec) {
  v1::ValidateJobRequest request;
  *request.mutable_spec() = spec;
  v1::ValidateJobResponse response;
  grpc::ClientContext context;
  Bound(&context);
  const grpc::Status status = jobs_->ValidateJob(&context, request, &response);
  if (!status.ok()) return FromGrpc(status);
  return response;
}

void Cluster::Cancel(const std::string& id) {
  v1::CancelJobRequest request;
  request.set_job_id(id);
  v1::Job job;
  grpc::ClientContext context;
  Bound(&context);
  const grpc::Status status = jobs_->CancelJob(&context, request, &job);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

v1::Job Cluster::Get(const std::string& id) {
  v1::GetJobRequest request;
  request.set_job_id(id);
  v1::Job job;
  grpc::ClientContext context;
  Bound(&context);
  jobs_->GetJob(&context, request, &job);
  return job;
}

v1::Job Cluster::Await(const std::string& id, const std::function<bool(const v1::Job&)>& wanted) {
  v1::Job job;
  EXPECT_TRUE(Eventually(kEnd, [&] {
    job = Get(id);
    return wanted(job);
  })) << job.ShortDebugString();
  return job;
}

v1::Job Cluster::AwaitEnd(const std::string& id) {
  return Await(id, [](const v1::Job& job) { return IsTerminal(job.state()); });
}

std::vector<v1::MetricPoint> Cluster::LossPoints(const std::string& id) {
  v1::QueryMetricsRequest request;
  request.set_job_id(id);
  request.add_names("train/loss");
  request.set_max_points(100000);
  v1::QueryMetricsResponse response;
  grpc::ClientContext context;
  Bound(&context);
  metrics_->QueryMetrics(&context, request, &response);
  return {response.points().begin(), response.points().end()};
}

std::map<int64_t, double> Cluster::Losses(const std::string& id) {
  std::map<int64_t, double> losses;
  for (const v1::MetricPoint& point : LossPoints(id)) losses[point.step()] = point.value();
  return losses;
}

void Cluster::AwaitStep(const std::string& id, int64_t step) {
  EXPECT_TRUE(Eventually(kEnd,
                         [&] {
                           const std::map<int64_t, double> losses = Losses(id);
                           return (!losses.empty() && losses.rbegin()->first >= step) ||
                                  IsTerminal(Get(id).state());
                         }))
      << "no metrics of step " << step;
}

std::vector<std::string> Cluster::Logs(const std::string& id) {
  v1::TailLogsRequest request;
  request.set_job_id(id);
  grpc::ClientContext context;
  Bound(&context);
  const auto stream = logs_->TailLogs(&context, request);
  std::vector<std::string> lines;
  for (v1::LogLines batch; stream->Read(&batch);) {
    for (const v1::LogLine& line : batch.lines()) lines.push_back(line.text());
  }
  EXPECT_TRUE(stream->Finish().ok());
  return lines;
}

std::vector<int> Cluster::Trainers() const { return FindProcesses("octavo-trainer", folder_); }

}  // namespace octavo::endtoend
