#include "worker/trainer/attempt_run.h"

#include <algorithm>
#include <exception>
#include <new>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/file.h"
#include "base/status.h"
#include "base/strict_json.h"
#include "worker/trainer/metrics.h"
#include "worker/trainer/report.h"
#include "worker/trainer/run_spec.h"

namespace octavo::trainer {
namespace {

constexpr int64_t kManifestLimitBytes = 64 << 20;
constexpr int64_t kProgressLimitBytes = 4096;
constexpr absl::Duration kBetweenLines = absl::Seconds(1);
constexpr absl::Duration kBetweenLooks = absl::Milliseconds(50);  // at whether a stop is asked for
// Of a stop's grace, for the end of the process.
constexpr absl::Duration kTimeToExit = absl::Milliseconds(500);

float Median(std::vector<float> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// 0 unless the key holds a count.
int64_t CountOf(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

}  // namespace

AttemptRun::AttemptRun(v1::Assignment assignment, AgentLink* link, RunOptions options)
    : assignment_(std::move(assignment)),
      link_(link),
      options_(std::move(options)),
      folders_(assignment_),
      saved_step_(assignment_.resume_from().step()),
      metrics_([this](const MetricQueue::Points& points) { return link_->ReportMetrics(points); },
               options_.most_waiting_steps),
      committer_([this](const v1::Checkpoint& checkpoint) -> Committer::ObsoleteFolders {
        // What a checkpoint covers is not trained again: its metrics must be there before it.
        RETURN_IF_ERROR(metrics_.Flush());
        return link_->CommitCheckpoint(checkpoint);
      }) {}

AttemptRun::End AttemptRun::Execute() {
  const auto run = [this]() -> absl::Status {
    RETURN_IF_ERROR(Prepare());
    RETURN_IF_ERROR(Train());
    return stopped_ ? absl::OkStatus() : Complete();
  };
  absl::Status status;
  try {
    status = run();
  } catch (const std::bad_alloc&) {
    phase_ = Phase::kTrain;
    status = absl::ResourceExhaustedError(
        "the trainer could not allocate memory on the host; lower batch.micro_batch or "
        "data.sequence_length, or use a worker with more memory");
  } catch (const std::exception& error) {
    // Before the first step, what nobody foresaw comes from the inputs, and would come again.
    const bool inputs = phase_ == Phase::kPrepare;
    const std::string message =
        absl::StrCat(inputs ? "reading the job's inputs: " : "training: ", error.what());
    status = inputs ? absl::InvalidArgumentError(message) : absl::InternalError(message);
    phase_ = inputs ? phase_ : Phase::kTrain;
  }
  engine_.reset();
  const End end = Report(status);
  link_->Abandon();  // else the threads would wait for what nobody asks for any more
  return end;
}

AttemptRun::End AttemptRun::Report(const absl::Status& status) {
  if (stopped_) return End::kStopped;
  // A failed run's last checkpoint is worth having, and its last steps tell why it failed.
  if (!agent_lost_) (void)AwaitCommit();
  while (!agent_lost_ && !metrics_.AwaitSent(kBetweenLooks) && !options_.stop->set()) {
  }
  if (agent_lost_) return End::kAgentLost;
  v1::FinishRequest request;
  if (status.ok()) {
    *request.mutable_report() = report_;
  } else {
    *request.mutable_failure() = MakeFailure(status, phase_);
    Say(absl::StrCat("failed: ", request.failure().message()));
  }
  return link_->Finish(request).ok() ? End::kReported : End::kAgentLost;
}

void AttemptRun::Say(const std::string& line) const { *options_.out << line << std::endl; }

absl::Status AttemptRun::FromAgent(const absl::Status& status) {
  const bool gone = absl::IsUnavailable(status) || absl::IsCancelled(status) ||
                    absl::IsAborted(status) || absl::IsDeadlineExceeded(status) ||
                    absl::StrContains(status.message(), "LEASE_FENCED");
  if (gone) {
    agent_lost_ = true;
    Say(absl::StrCat("stops: ", status.message()));
  }
  return status;
}

absl::Status AttemptRun::Prepare() {
  phase_ = Phase::kPrepare;
  ASSIGN_OR_RETURN(spec_, MakeRunSpec(assignment_.spec()));
  phase_ = Phase::kStore;
  RETURN_IF_ERROR(folders_.Prepare());
  RETURN_IF_ERROR(CheckResumeFolder());
  phase_ = Phase::kPrepare;
  RETURN_IF_ERROR(OpenEngine());
  folders_.RemoveObsolete();
  RestoreProgress();
  return absl::OkStatus();
}

// A committed checkpoint that is not there, or not what was committed, is a fault of the storage:
// neither the job nor a restart can mend it.
absl::Status AttemptRun::CheckResumeFolder() const {
  const v1::Checkpoint& checkpoint = assignment_.resume_from();
  if (checkpoint.folder().empty()) return absl::OkStatus();
  const absl::StatusOr<std::string> manifest =
      ReadFile(checkpoint.folder() + "/manifest.json", kManifestLimitBytes);
  if (!manifest.ok()) {
    return absl::DataLossError(
        absl::StrCat("the committed checkpoint of step ", checkpoint.step(),
                     " cannot be read: ", manifest.status().message(),
                     "; put output_folder on storage that every worker sees, "
                     "or submit the job anew"));
  }
  if (Sha256Of(*manifest) != checkpoint.manifest_sha256()) {
    return absl::DataLossError(
        absl::StrCat("checkpoint ", checkpoint.folder(),
                     " is damaged: its manifest.json has not the hash that was "
                     "committed; submit the job anew"));
  }
  return absl::OkStatus();
}

absl::Status AttemptRun::OpenEngine() {
  const std::string name = assignment_.spec().resources().device_kind() == "gpu" ? "cuda" : "cpu";
  ASSIGN_OR_RETURN(backend_,
                   kernels::OpenBackend(name, {.memory_bytes = options_.memory_bytes,
                                               .threads = options_.threads,
                                               .device_index = assignment_.device_index()}));
  const kernels::BackendDescription backend = backend_->Describe();
  Say(absl::StrFormat("attempt %d of %s on %s, GEMMs by %s", assignment_.lease().epoch(),
                      assignment_.lease().job_id(), backend.device, backend.matmul));
  const std::string& resume_folder = assignment_.resume_from().folder();
  ASSIGN_OR_RETURN(engine_, options_.prepare(spec_, resume_folder, backend_.get()));
  if (!resume_folder.empty()) {
    Say(absl::StrCat("resumes after step ", engine_->completed_steps(), " from ", resume_folder));
  }
  return absl::OkStatus();
}

absl::Status AttemptRun::Train() {
  const int64_t every = assignment_.spec().stages(0).checkpoint().every_steps();
  bool due = false;
  while (!engine_->done()) {
    if (options_.stop->set()) return Stop();
    RETURN_IF_ERROR(TakeStep());
    RETURN_IF_ERROR(NoteCommit(absl::ZeroDuration()));
    due = due || (every > 0 && engine_->completed_steps() % every == 0);
    if (!due || engine_->done() || committer_.busy()) continue;
    RETURN_IF_ERROR(SaveCheckpoint());
    due = false;
  }
  return SaveLastStep();
}

absl::Status AttemptRun::SaveLastStep() {
  RETURN_IF_ERROR(AwaitCommit());
  if (!committer_.busy() && saved_step_ != engine_->completed_steps()) {
    RETURN_IF_ERROR(SaveCheckpoint());
    RETURN_IF_ERROR(AwaitCommit());
  }
  return committer_.busy() ? Stop() : absl::OkStatus();
}

// The agent goes on asking for a commit whose answer does not come within the grace.
absl::Status AttemptRun::Stop() {
  if (const absl::Status saved = SaveBeforeStop(); !saved.ok()) {
    Say(absl::StrCat("could not save a checkpoint before it stops: ", saved.message()));
  }
  if (agent_lost_) return absl::OkStatus();
  (void)metrics_.AwaitSent(GraceLeft());
  stopped_ = true;
  Say(absl::StrCat("stops on request after step ", engine_->completed_steps()));
  return absl::OkStatus();
}

absl::Status AttemptRun::SaveBeforeStop() {
  if (saved_step_ != engine_->completed_steps() && HasTimeToSave()) {
    while (committer_.busy() && HasTimeToSave()) RETURN_IF_ERROR(NoteCommit(kBetweenLooks));
    if (!committer_.busy()) RETURN_IF_ERROR(SaveCheckpoint());
  }
  while (committer_.busy() && GraceLeft() > absl::ZeroDuration()) {
    RETURN_IF_ERROR(NoteCommit(std::min(kBetweenLooks, GraceLeft())));
  }
  return absl::OkStatus();
}

absl::Duration AttemptRun::GraceLeft() const {
  const absl::Duration usable =
      options_.stop_grace - std::min(kTimeToExit, options_.stop_grace / 4);
  return usable - (options_.clock->Monotonic() - options_.stop->since());
}

bool AttemptRun::HasTimeToSave() const {
  return longest_save_ > absl::ZeroDuration() && longest_save_ * 1.5 < GraceLeft();
}

absl::Status AttemptRun::AwaitCommit() {
  while (committer_.busy() && !options_.stop->set()) RETURN_IF_ERROR(NoteCommit(kBetweenLooks));
  return absl::OkStatus();
}

absl::Status AttemptRun::NoteCommit(absl::Duration time_limit) {
  const std::optional<Committer::Answer> answer = committer_.TakeAnswer(time_limit);
  if (!answer.has_value()) return absl::OkStatus();
  phase_ = Phase::kStore;
  RETURN_IF_ERROR(FromAgent(answer->obsolete_folders.status()));
  Say(absl::StrCat("checkpoint ", answer->checkpoint.folder()));
  report_.set_checkpoint_folder(answer->checkpoint.folder());
  folders_.RemoveObsolete(*answer->obsolete_folders);
  return absl::OkStatus();
}

absl::Status AttemptRun::TakeStep() {
  phase_ = Phase::kTrain;
  ASSIGN_OR_RETURN(const engine::StepReport step, engine_->Step());
  while (!metrics_.AwaitRoom(kBetweenLooks) && !options_.stop->set()) {
  }
  RETURN_IF_ERROR(FromAgent(metrics_.Add(MakeMetricPoints(step, options_.clock->Now()))));
  if (step.seconds > 0) {
    tokens_per_second_.push_back(
        static_cast<float>(static_cast<double>(step.step_tokens) / step.seconds));
  }
  report_.set_steps(step.step);
  report_.set_tokens(step.total_tokens);
  report_.set_final_loss(step.loss);
  report_.set_nonfinite_steps(step.nonfinite_steps);
  report_.set_peak_memory_bytes(step.peak_memory_bytes);
  const absl::Duration now = options_.clock->Monotonic();
  if (now - last_line_ >= kBetweenLines || !step.applied || engine_->done()) {
    Say(DescribeStep(step, spec_.steps));
    last_line_ = now;
  }
  return absl::OkStatus();
}

absl::Status AttemptRun::SaveCheckpoint() {
  phase_ = Phase::kStore;
  const absl::Duration start = options_.clock->Monotonic();
  v1::Checkpoint checkpoint;
  checkpoint.set_step(engine_->completed_steps());
  checkpoint.set_folder(folders_.Checkpoint(checkpoint.step()));
  RETURN_IF_ERROR(FromAgent(link_->BeginCheckpoint(checkpoint.step(), checkpoint.folder())));
  ASSIGN_OR_RETURN(const std::string manifest_sha256, engine_->SaveCheckpoint(checkpoint.folder()));
  checkpoint.set_manifest_sha256(manifest_sha256);
  RETURN_IF_ERROR(SaveProgress());
  saved_step_ = checkpoint.step();
  longest_save_ = std::max(longest_save_, options_.clock->Monotonic() - start);
  committer_.Start(std::move(checkpoint));
  return absl::OkStatus();
}

// An attempt may start from the checkpoint of the last step, and has then no step of its own whose
// figures it could report.
absl::Status AttemptRun::SaveProgress() const {
  v1::RunReport progress = report_;
  progress.clear_checkpoint_folder();
  return WriteFileAtomically(folders_.Progress(), ToJson(progress));
}

void AttemptRun::RestoreProgress() {
  report_.set_steps(engine_->completed_steps());
  report_.set_checkpoint_folder(assignment_.resume_from().folder());
  const std::string path = folders_.ResumedProgress();
  const absl::StatusOr<std::string> text = ReadFile(path, kProgressLimitBytes);
  if (!text.ok()) return;
  const absl::StatusOr<nlohmann::json> json = ParseStrictJson(*text, path);
  if (!json.ok() || CountOf(*json, "steps") != report_.steps()) return;
  report_.set_tokens(CountOf(*json, "tokens"));
  report_.set_nonfinite_steps(CountOf(*json, "nonfinite_steps"));
  report_.set_peak_memory_bytes(CountOf(*json, "peak_memory_bytes"));
  const auto loss = json->find("final_loss");
  if (loss != json->end() && loss->is_number()) report_.set_final_loss(*loss);
}

absl::Status AttemptRun::Complete() {
  phase_ = Phase::kTrain;
  ASSIGN_OR_RETURN(const engine::FinalReport final_report, engine_->Finish());
  AddFinalReport(final_report, backend_->Describe(), &report_);
  report_.set_tokens_per_second(Median(std::move(tokens_per_second_)));
  if (assignment_.has_baseline()) {
    const std::string comparison = CompareWithBaseline(report_, assignment_.baseline());
    if (!comparison.empty()) Say(comparison);
  }
  phase_ = Phase::kStore;
  if (assignment_.spec().stages(0).checkpoint().export_format() == "bf16") {
    RETURN_IF_ERROR(ExportWeights());
  }
  RETURN_IF_ERROR(WriteFileAtomically(folders_.Report(), ToJson(report_)));
  Say(absl::StrFormat("done after %d steps, loss %.4f, weights %s", report_.steps(),
                      report_.final_loss(), report_.weights_sha256().substr(0, 12)));
  return absl::OkStatus();
}

absl::Status AttemptRun::ExportWeights() {
  RETURN_IF_ERROR(engine_->Export(folders_.Export()));
  report_.set_export_folder(folders_.Export());
  return absl::OkStatus();
}

}  // namespace octavo::trainer
