#include "worker/engine/engine.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "worker/engine/checkpoint/random_weights.h"
#include "worker/engine/checkpoint/weights_import.h"
#include "worker/engine/fingerprint.h"
#include "worker/engine/inputs.h"
#include "worker/engine/run.h"

namespace octavo::engine {
namespace {

// On a CPU the device's memory is the host's; elsewhere corpus and program lie beside it.
absl::Status CheckMemory(const MemoryPlan& plan, const kernels::BackendDescription& backend) {
  const int64_t needed = backend.name == "cpu" ? plan.total() : plan.device();
  if (needed <= backend.memory_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the run needs ", needed, " bytes (", Describe(plan), "); the device has ",
                   backend.memory_bytes,
                   "; lower batch.micro_batch or data.sequence_length, or use a larger device"));
}

// Where config.json and the tokenizer are read: the model folder, or, where that is gone, what the
// checkpoint kept of it. A folder that is there is read, so that what was changed in it is told.
std::string ModelFolder(const RunPlan& plan, const std::optional<CheckpointReader>& checkpoint) {
  std::error_code error;
  const bool there = std::filesystem::exists(plan.model.folder + "/config.json", error);
  return there || !checkpoint.has_value() ? plan.model.folder : checkpoint->model_folder();
}

// Everything that can be refused before memory is taken.
absl::Status OpenInputs(const std::optional<CheckpointReader>& checkpoint, RunParts* parts) {
  RunPlan& plan = parts->plan;
  // An export writes what the run began with, whatever became of the folder.
  const std::string first = checkpoint.has_value() ? checkpoint->model_folder() : plan.model.folder;
  plan.model.folder = ModelFolder(plan, checkpoint);
  ASSIGN_OR_RETURN(parts->config, ReadModelConfig(plan.model.folder));
  const bool own_tokenizer = plan.data.tokenizer == DataPlan::TokenizerKind::kFolder;
  ASSIGN_OR_RETURN(parts->model_files, ModelFiles::Read(first, {.with_tokenizer = own_tokenizer}));
  RETURN_IF_ERROR(CheckSequenceLength(plan, parts->config));
  ASSIGN_OR_RETURN(const PrecisionPolicy policy,
                   PrecisionPolicy::Create(plan.recipe, PlanParameters(parts->config.shape)));
  const kernels::BackendDescription backend = parts->backend->Describe();
  MemoryPlan memory = PlanRunMemory(plan, parts->config, policy, PlaceOf(backend));
  RETURN_IF_ERROR(CheckMemory(memory, backend));
  ASSIGN_OR_RETURN(parts->tokenizer, OpenTokenizer(plan));
  RETURN_IF_ERROR(CheckVocabulary(*parts->tokenizer, parts->config));
  if (!plan.evaluation.exact_match_file.empty()) {
    ASSIGN_OR_RETURN(parts->exact_match, ReadExactMatch(plan.evaluation, *parts->tokenizer,
                                                        MostPromptTokens(plan, parts->config)));
  }
  ASSIGN_OR_RETURN(parts->corpus,
                   OpenCorpus(plan.data, *parts->tokenizer, parts->config.shape.vocabulary));
  memory.corpus = parts->corpus->report().host_bytes;
  RETURN_IF_ERROR(CheckMemory(memory, backend));
  std::error_code error;
  if (plan.data.tokenizer == DataPlan::TokenizerKind::kByte &&
      std::filesystem::exists(plan.model.folder + "/tokenizer.json", error)) {
    parts->warnings.push_back(
        "the byte tokenizer is used; an export leaves out the model folder's own tokenizer");
  }
  const std::vector<std::string>& warnings = parts->corpus->report().warnings;
  parts->warnings.insert(parts->warnings.end(), warnings.begin(), warnings.end());
  return absl::OkStatus();
}

absl::Status CheckCheckpoint(const CheckpointReader& checkpoint, const Fingerprint& fingerprint,
                             Continuation continuation, RunParts* parts) {
  const RunState& state = checkpoint.state();
  RETURN_IF_ERROR(
      Annotate(CheckContinues(state.fingerprint, fingerprint, continuation), checkpoint.folder()));
  if (continuation == Continuation::kResume) return absl::OkStatus();
  RETURN_IF_ERROR(CheckExtendedSteps(parts->plan, state));
  std::string warning = absl::StrCat("extends ", checkpoint.folder(), " after step ", state.step);
  for (const std::string& change : Differences(state.fingerprint, fingerprint)) {
    absl::StrAppend(&warning, "; ", change);
  }
  parts->warnings.push_back(std::move(warning));
  return absl::OkStatus();
}

absl::Status Allocate(RunParts* parts) {
  ASSIGN_OR_RETURN(parts->parameters,
                   Parameters::Create(PlanParameters(parts->config.shape), parts->backend));
  const Transformer::Options options = {
      .config = parts->config,
      .recipe = parts->plan.recipe,
      .max_tokens = parts->plan.micro_batch * parts->plan.data.sequence_length};
  ASSIGN_OR_RETURN(parts->transformer,
                   Transformer::Create(options, parts->parameters->layout(), parts->backend));
  parts->optimizer.emplace(parts->plan.optimizer, parts->backend);
  return absl::OkStatus();
}

absl::Status LoadFresh(RunParts* parts) {
  const RunPlan& plan = parts->plan;
  if (plan.model.initialisation == ModelPlan::Initialisation::kRandom) {
    return InitialiseWeights(*parts->parameters, plan.seed, parts->config.initializer_range,
                             parts->backend);
  }
  ASSIGN_OR_RETURN(const SafetensorsFolder folder, SafetensorsFolder::Open(plan.model.folder));
  return ImportWeights(folder, *parts->parameters, parts->backend, &parts->warnings);
}

absl::Status LoadCheckpoint(const CheckpointReader& reader, RunParts* parts) {
  parts->state = reader.state();
  RETURN_IF_ERROR(parts->transformer->step().SetAppliedUpdates(parts->state.applied_updates));
  return reader.Load(*parts->parameters, parts->backend);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Prepare(const RunPlan& plan,
                                                        const std::string& resume_folder,
                                                        kernels::Backend* backend) {
  RunParts parts;
  parts.plan = plan;
  parts.backend = backend;
  const auto continuation = resume_folder.empty() ? Continuation::kExtend : Continuation::kResume;
  const std::string& folder = resume_folder.empty() ? plan.extend_checkpoint : resume_folder;
  const bool fresh = folder.empty();
  std::optional<CheckpointReader> checkpoint;
  if (!fresh) {
    ASSIGN_OR_RETURN(checkpoint, CheckpointReader::Open(folder));
  }
  RETURN_IF_ERROR(OpenInputs(checkpoint, &parts));
  Fingerprint fingerprint =
      MakeFingerprint(plan, parts.config, parts.corpus->sha256(), parts.tokenizer->sha256());
  if (!fresh) RETURN_IF_ERROR(CheckCheckpoint(*checkpoint, fingerprint, continuation, &parts));
  RETURN_IF_ERROR(Allocate(&parts));
  RETURN_IF_ERROR(fresh ? LoadFresh(&parts) : LoadCheckpoint(*checkpoint, &parts));
  parts.state.fingerprint = std::move(fingerprint);
  RETURN_IF_ERROR(parts.transformer->UpdateWeights(*parts.parameters, NextStep(plan, parts.state)));
  if (fresh) {
    ASSIGN_OR_RETURN(parts.state.initial_holdout, MeasureHoldout(parts));
  }
  return std::make_unique<Run>(std::move(parts));
}

}  // namespace octavo::engine
