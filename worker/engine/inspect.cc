#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "worker/engine/checkpoint/safetensors_folder.h"
#include "worker/engine/checkpoint/training_state.h"
#include "worker/engine/checkpoint/weights_import.h"
#include "worker/engine/engine.h"
#include "worker/engine/evaluate/exact_match.h"
#include "worker/engine/inputs.h"
#include "worker/engine/inspect_corpus.h"

namespace octavo::engine {
namespace {

// Looks at each input on its own, so that one problem hides no other.
class Inspector {
 public:
  Inspector(const RunSpec& spec, const Place& place) : spec_(spec), place_(place) {}

  Inspection Run() {
    InspectModel();
    InspectTokenizer();
    InspectCorpus();
    InspectExactMatch();
    InspectExtended();
    return std::move(inspection_);
  }

 private:
  void Add(const std::string& field, absl::string_view message) {
    inspection_.problems.push_back({field, std::string(message)});
  }
  void AddIfBad(const std::string& field, const absl::Status& status) {
    if (!status.ok()) Add(field, status.message());
  }

  void InspectModel() {
    std::error_code error;
    if (!std::filesystem::is_directory(spec_.model.folder, error)) {
      Add("model.folder", absl::StrCat("\"", spec_.model.folder, "\" is not a folder here"));
      return;
    }
    absl::StatusOr<ModelConfig> config = ReadModelConfig(spec_.model.folder);
    if (config.ok()) {
      config_ = *std::move(config);
      EstimateSizes();
      AddIfBad("data.sequence_length", CheckSequenceLength(spec_, *config_));
      const bool loads = spec_.model.initialisation == ModelSpec::Initialisation::kWeights &&
                         spec_.extend_checkpoint.empty();
      if (loads) InspectWeights();
    } else {
      Add("model.folder", config.status().message());
    }
  }

  void InspectWeights() {
    const absl::StatusOr<SafetensorsFolder> folder = SafetensorsFolder::Open(spec_.model.folder);
    if (!folder.ok()) return Add("model.folder", folder.status().message());
    const WeightsCheck check = CheckWeights(*folder, LayOutParameters(config_->shape));
    for (const std::string& problem : check.problems) Add("model.folder", problem);
    inspection_.warnings.insert(inspection_.warnings.end(), check.warnings.begin(),
                                check.warnings.end());
  }

  void EstimateSizes() {
    const ParameterLayout layout = LayOutParameters(config_->shape);
    inspection_.parameters = layout.parameter_count;
    inspection_.tokens_per_step =
        spec_.micro_batch * spec_.gradient_accumulation * spec_.data.sequence_length;
    // Master weights and both moments in FP32; the headers are small beside them.
    inspection_.checkpoint_bytes = 3 * static_cast<int64_t>(sizeof(float)) * layout.parameter_count;
    const absl::StatusOr<PrecisionPolicy> policy = PrecisionPolicy::Create(spec_.recipe, layout);
    if (!policy.ok()) {
      const bool rules = absl::StartsWith(policy.status().message(), "rules");
      return Add(rules ? "recipe.rules" : "recipe.keep_bf16", policy.status().message());
    }
    inspection_.memory = EstimateRunMemory(spec_, *config_, *policy, place_);
  }

  void InspectTokenizer() {
    absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = OpenTokenizer(spec_);
    if (!tokenizer.ok()) return Add("data.tokenizer", tokenizer.status().message());
    tokenizer_ = *std::move(tokenizer);
    if (config_.has_value()) AddIfBad("data.tokenizer", CheckVocabulary(*tokenizer_, *config_));
  }

  // Its state alone: whole weights are read and hashed only by Prepare, as the corpus is.
  void InspectExtended() {
    if (spec_.extend_checkpoint.empty()) return;
    const absl::StatusOr<RunState> state = ReadRunState(spec_.extend_checkpoint);
    if (!state.ok()) return Add("extend_checkpoint", state.status().message());
    AddIfBad("extend_checkpoint", CheckExtendedSteps(spec_, *state));
    if (!config_.has_value() || tokenizer_ == nullptr) return;
    const Fingerprint now =
        MakeFingerprint(spec_, *config_, CorpusOf(state->fingerprint), tokenizer_->sha256());
    AddIfBad("extend_checkpoint", CheckContinues(state->fingerprint, now, Continuation::kExtend));
  }

  void InspectCorpus() {
    const CorpusInspection corpus = octavo::engine::InspectCorpus(
        spec_.data, tokenizer_.get(), config_.has_value() ? config_->shape.vocabulary : 0);
    inspection_.problems.insert(inspection_.problems.end(), corpus.problems.begin(),
                                corpus.problems.end());
    inspection_.warnings.insert(inspection_.warnings.end(), corpus.warnings.begin(),
                                corpus.warnings.end());
    inspection_.memory.corpus = corpus.host_bytes;
    inspection_.train_tokens = corpus.train_rows * spec_.data.sequence_length;
    if (inspection_.train_tokens == 0) return;
    inspection_.epochs =
        static_cast<double>(spec_.steps * spec_.micro_batch * spec_.gradient_accumulation) /
        static_cast<double>(corpus.train_rows);
  }

  void InspectExactMatch() {
    if (spec_.evaluation.exact_match_file.empty() || tokenizer_ == nullptr) return;
    if (!config_.has_value()) return;
    AddIfBad(
        "evaluation.exact_match_file",
        ReadExactMatch(spec_.evaluation, *tokenizer_, MostPromptTokens(spec_, *config_)).status());
  }

  const RunSpec& spec_;
  const Place& place_;
  Inspection inspection_;
  std::optional<ModelConfig> config_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

}  // namespace

Inspection Inspect(const RunSpec& spec, const Place& place) { return Inspector(spec, place).Run(); }

}  // namespace octavo::engine
