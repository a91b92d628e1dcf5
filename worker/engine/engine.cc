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

// Everything that can be refused before memory is taken.
absl::Status OpenInputs(RunParts* parts) {
  const RunPlan& plan = parts->plan;
  ASSIGN_OR_RETURN(parts->config, ReadModelConfig(plan.model.folder));
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
  RETURN_IF_ERROR(OpenInputs(&parts));
  Fingerprint fingerprint =
      MakeFingerprint(plan, parts.config, parts.corpus->sha256(), parts.tokenizer->sha256());
  const bool fresh = resume_folder.empty();
  std::optional<CheckpointReader> checkpoint;
  if (!fresh) {
    ASSIGN_OR_RETURN(checkpoint, CheckpointReader::Open(resume_folder));
    RETURN_IF_ERROR(
        Annotate(CheckSameRun(checkpoint->state().fingerprint, fingerprint), resume_folder));
  }
  RETURN_IF_ERROR(Allocate(&parts));
  RETURN_IF_ERROR(fresh ? LoadFresh(&parts) : LoadCheckpoint(*checkpoint, &parts));
  parts.state.fingerprint = std::move(fingerprint);
  RETURN_IF_ERROR(parts.transformer->UpdateWeights(*parts.parameters));
  if (fresh) {
    ASSIGN_OR_RETURN(parts.state.initial_holdout, MeasureHoldout(parts));
  }
  return std::make_unique<Run>(std::move(parts));
}

}  // namespace octavo::engine
