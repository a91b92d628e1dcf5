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
absl::Status CheckMemory(const MemoryEstimate& spec, const kernels::BackendDescription& backend) {
  const int64_t needed = backend.name == "cpu" ? spec.total() : spec.device();
  if (needed <= backend.memory_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the run needs ", needed, " bytes (", Describe(spec), "); the device has ",
                   backend.memory_bytes,
                   "; lower batch.micro_batch or data.sequence_length, or use a larger device"));
}

// Where config.json and the tokenizer are read: the model folder, or, where that is gone, what the
// checkpoint kept of it. A folder that is there is read, so that what was changed in it is told.
std::string ModelFolder(const RunSpec& spec, const std::optional<CheckpointReader>& checkpoint) {
  std::error_code error;
  const bool there = std::filesystem::exists(spec.model.folder + "/config.json", error);
  return there || !checkpoint.has_value() ? spec.model.folder : checkpoint->model_folder();
}

// Everything that can be refused before memory is taken.
absl::Status OpenInputs(const std::optional<CheckpointReader>& checkpoint, RunParts* parts) {
  RunSpec& spec = parts->spec;
  // An export writes what the run began with, whatever became of the folder.
  const std::string first = checkpoint.has_value() ? checkpoint->model_folder() : spec.model.folder;
  spec.model.folder = ModelFolder(spec, checkpoint);
  ASSIGN_OR_RETURN(parts->config, ReadModelConfig(spec.model.folder));
  const bool own_tokenizer = spec.data.tokenizer == DataSpec::TokenizerKind::kFolder;
  ASSIGN_OR_RETURN(parts->model_files, ModelFiles::Read(first, {.with_tokenizer = own_tokenizer}));
  RETURN_IF_ERROR(CheckSequenceLength(spec, parts->config));
  ASSIGN_OR_RETURN(const PrecisionPolicy policy,
                   PrecisionPolicy::Create(spec.recipe, LayOutParameters(parts->config.shape)));
  const kernels::BackendDescription backend = parts->backend->Describe();
  MemoryEstimate memory = EstimateRunMemory(spec, parts->config, policy, PlaceOf(backend));
  RETURN_IF_ERROR(CheckMemory(memory, backend));
  ASSIGN_OR_RETURN(parts->tokenizer, OpenTokenizer(spec));
  RETURN_IF_ERROR(CheckVocabulary(*parts->tokenizer, parts->config));
  if (!spec.evaluation.exact_match_file.empty()) {
    ASSIGN_OR_RETURN(parts->exact_match, ReadExactMatch(spec.evaluation, *parts->tokenizer,
                                                        MostPromptTokens(spec, parts->config)));
  }
  ASSIGN_OR_RETURN(parts->corpus,
                   OpenCorpus(spec.data, *parts->tokenizer, parts->config.shape.vocabulary));
  memory.corpus = parts->corpus->report().host_bytes;
  RETURN_IF_ERROR(CheckMemory(memory, backend));
  std::error_code error;
  if (spec.data.tokenizer == DataSpec::TokenizerKind::kByte &&
      std::filesystem::exists(spec.model.folder + "/tokenizer.json", error)) {
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
  RETURN_IF_ERROR(CheckExtendedSteps(parts->spec, state));
  std::string warning = absl::StrCat("extends ", checkpoint.folder(), " after step ", state.step);
  for (const std::string& change : Differences(state.fingerprint, fingerprint)) {
    absl::StrAppend(&warning, "; ", change);
  }
  parts->warnings.push_back(std::move(warning));
  return absl::OkStatus();
}

absl::Status Allocate(RunParts* parts) {
  ASSIGN_OR_RETURN(parts->parameters,
                   Parameters::Create(LayOutParameters(parts->config.shape), parts->backend));
  const Transformer::Options options = {
      .config = parts->config,
      .recipe = parts->spec.recipe,
      .max_tokens = parts->spec.micro_batch * parts->spec.data.sequence_length};
  ASSIGN_OR_RETURN(parts->transformer,
                   Transformer::Create(options, parts->parameters->layout(), parts->backend));
  parts->optimizer.emplace(parts->spec.optimizer, parts->backend);
  return absl::OkStatus();
}

absl::Status LoadFresh(RunParts* parts) {
  const RunSpec& spec = parts->spec;
  if (spec.model.initialisation == ModelSpec::Initialisation::kRandom) {
    return InitialiseWeights(*parts->parameters, spec.seed, parts->config.initializer_range,
                             parts->backend);
  }
  ASSIGN_OR_RETURN(const SafetensorsFolder folder, SafetensorsFolder::Open(spec.model.folder));
  return ImportWeights(folder, *parts->parameters, parts->backend, &parts->warnings);
}

absl::Status LoadCheckpoint(const CheckpointReader& reader, RunParts* parts) {
  parts->state = reader.state();
  RETURN_IF_ERROR(parts->transformer->step().SetAppliedUpdates(parts->state.applied_updates));
  return reader.Load(*parts->parameters, parts->backend);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Prepare(const RunSpec& spec,
                                                        const std::string& resume_folder,
                                                        kernels::Backend* backend) {
  RunParts parts;
  parts.spec = spec;
  parts.backend = backend;
  const auto continuation = resume_folder.empty() ? Continuation::kExtend : Continuation::kResume;
  const std::string& folder = resume_folder.empty() ? spec.extend_checkpoint : resume_folder;
  const bool fresh = folder.empty();
  std::optional<CheckpointReader> checkpoint;
  if (!fresh) {
    ASSIGN_OR_RETURN(checkpoint, CheckpointReader::Open(folder));
  }
  RETURN_IF_ERROR(OpenInputs(checkpoint, &parts));
  Fingerprint fingerprint =
      MakeFingerprint(spec, parts.config, parts.corpus->sha256(), parts.tokenizer->sha256());
  if (!fresh) RETURN_IF_ERROR(CheckCheckpoint(*checkpoint, fingerprint, continuation, &parts));
  RETURN_IF_ERROR(Allocate(&parts));
  RETURN_IF_ERROR(fresh ? LoadFresh(&parts) : LoadCheckpoint(*checkpoint, &parts));
  parts.state.fingerprint = std::move(fingerprint);
  RETURN_IF_ERROR(parts.transformer->UpdateWeights(*parts.parameters, NextStep(spec, parts.state)));
  if (fresh) {
    ASSIGN_OR_RETURN(parts.state.initial_holdout, MeasureHoldout(parts));
  }
  return std::make_unique<Run>(std::move(parts));
}

}  // namespace octavo::engine
