#include "server/rpc/admission.h"

#include <sys/stat.h>

#include <algorithm>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/file.h"
#include "base/status.h"
#include "proto/support/job_spec.h"
#include "server/rpc/checks.h"
#include "worker/engine/model/config.h"
#include "worker/engine/precision/policy.h"
#include "worker/trainer/recipe_spec.h"

namespace octavo::rpc {
namespace {

// Response headers hold 8 KiB by default (gRPC's max_metadata_size); both together stay below.
constexpr size_t kMaxMessageBytes = 2048;
constexpr size_t kMaxPayloadBytes = 4096;

// Which machine a job will get is not known when it is admitted: this one needs the most.
constexpr kernels::Machine kAnyMachine = {.threads = 64, .float32_products = true};

v1::Violation MakeViolation(absl::string_view field, std::string message) {
  v1::Violation violation;
  violation.set_field(std::string(field));
  violation.set_message(std::move(message));
  return violation;
}

std::string Bytes(int64_t bytes) {
  constexpr double kMebibyte = 1 << 20;
  constexpr double kGibibyte = 1 << 30;
  if (bytes >= 1 << 30) return absl::StrFormat("%.1f GiB", static_cast<double>(bytes) / kGibibyte);
  return absl::StrFormat("%.1f MiB", static_cast<double>(bytes) / kMebibyte);
}

engine::RunShape DescribeRun(const v1::Stage& stage, const engine::ModelShape& model) {
  engine::RunShape run;
  run.micro_batch = stage.batch().micro_batch();
  run.sequence = stage.data().sequence_length();
  run.fp8 = stage.recipe().name() != "bf16";
  if (stage.recipe().keep_bf16().empty() && stage.recipe().rules().empty()) return run;
  // A pattern that matches nothing is the trainer's to report.
  const absl::StatusOr<engine::PrecisionPolicy> policy = engine::PrecisionPolicy::Create(
      trainer::MakeRecipeSpec(stage.recipe()), engine::LayOutParameters(model));
  if (!policy.ok()) return run;
  run.fp8 = policy->any_fp8();
  run.linears = policy->linear_forms();
  return run;
}

// A pipe or device under that name could block its reader for ever.
bool HasRegularConfig(const std::string& folder) {
  struct stat info {};
  return stat((folder + "/config.json").c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

}  // namespace

absl::Status ViolationsStatus(const std::vector<v1::Violation>& violations) {
  std::string message = JoinViolations(violations);
  if (message.size() > kMaxMessageBytes)
    message = absl::StrCat(message.substr(0, kMaxMessageBytes), " ...");
  absl::Status status = absl::InvalidArgumentError(message);
  v1::Violations payload;
  for (const v1::Violation& violation : violations) {
    *payload.add_violations() = violation;
    if (payload.ByteSizeLong() <= kMaxPayloadBytes) continue;
    payload.mutable_violations()->RemoveLast();
    break;
  }
  status.SetPayload(kViolationsKey, absl::Cord(payload.SerializeAsString()));
  return status;
}

std::vector<v1::Violation> CompleteSpec(v1::JobSpec* spec) {
  if (const auto bytes = static_cast<int64_t>(spec->ByteSizeLong()); bytes > kMaxSpecBytes) {
    return {
        MakeViolation("", absl::StrCat("the spec has ", bytes, " bytes; the limit is ",
                                       kMaxSpecBytes, ": name fewer files, or concatenate them"))};
  }
  FillDefaults(spec);
  return CheckJobSpec(*spec);
}

int64_t EstimateJobMemory(const v1::JobSpec& spec) {
  if (spec.resources().memory_bytes() > 0) return spec.resources().memory_bytes();
  const std::string& folder = spec.stages(0).model().folder();
  if (!HasRegularConfig(folder)) return 0;
  const absl::StatusOr<engine::ModelConfig> config = engine::ReadModelConfig(folder);
  if (!config.ok()) return 0;
  const engine::Place place = {.backend = spec.resources().device_kind() == "gpu" ? "cuda" : "cpu",
                               .machine = kAnyMachine};
  return engine::EstimateMemory(config->shape, DescribeRun(spec.stages(0), config->shape), place)
      .total();
}

std::vector<v1::Violation> CheckBaseline(const v1::JobSpec& spec, const core::Core& core) {
  const std::string& id = spec.stages(0).divergence().baseline_job();
  if (id.empty()) return {};
  constexpr char kField[] = "stages[0].divergence.baseline_job";
  const core::JobPointer baseline = core.jobs().Find(id);
  if (baseline == nullptr) {
    // What is no id is not echoed: it may be long, and cut in the middle of a character.
    return {MakeViolation(kField, absl::StrCat(CheckJobId(id).ok() ? id : "the value",
                                               " is not the id of a stored job; write the id of a "
                                               "job that succeeded"))};
  }
  if (baseline->job.state() == v1::JOB_STATE_SUCCEEDED) return {};
  return {MakeViolation(
      kField, absl::StrCat("job \"", id, "\" is ", v1::JobState_Name(baseline->job.state()),
                           "; write the id of a job that succeeded"))};
}

std::vector<v1::Violation> CheckFleet(const v1::JobSpec& spec, int64_t memory_bytes,
                                      const std::vector<v1::Worker>& workers) {
  const std::string& kind = spec.resources().device_kind();
  const v1::Worker* largest_worker = nullptr;
  int64_t largest = -1;
  for (const v1::Worker& worker : workers) {
    if (worker.state() != v1::WORKER_STATE_CONNECTED) continue;
    for (const v1::Device& device : worker.devices()) {
      if (device.kind() != kind || device.memory_bytes() <= largest) continue;
      largest = device.memory_bytes();
      largest_worker = &worker;
    }
  }
  if (largest_worker == nullptr || memory_bytes <= largest) return {};
  return {MakeViolation(
      "resources.memory_bytes",
      absl::StrCat("the job needs ", Bytes(memory_bytes), " on a ", kind,
                   " device; the largest has ", Bytes(largest), " (worker ", largest_worker->id(),
                   "): lower stages[0].batch.micro_batch or stages[0].data.sequence_length, or "
                   "connect a larger worker"))};
}

std::string NewJobId() {
  constexpr char kAlphabet[] = "abcdefghijklmnopqrstuvwxyz0123456789";
  uint64_t random = 0;
  CHECK(absl::SimpleHexAtoi(RandomHex(8), &random));
  std::string id = "job-";
  for (int i = 0; i < 8; ++i) {
    id += kAlphabet[random % 36];
    random /= 36;
  }
  return id;
}

}  // namespace octavo::rpc
