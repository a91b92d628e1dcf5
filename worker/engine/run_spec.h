// A stage of a job as the engine takes it: resolved, plain, without protobuf. Ranges and defaults
// are those of spec.proto.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker/engine/precision/linear_policy.h"

namespace octavo::engine {

struct ModelSpec {
  std::string folder;
  enum class Initialisation { kWeights, kRandom } initialisation = Initialisation::kWeights;
};

struct DataSpec {
  std::vector<std::string> files;
  std::string text_field = "text";
  enum class TokenizerKind { kFolder, kByte } tokenizer = TokenizerKind::kFolder;
  int64_t sequence_length = 0;
  bool isolate_documents = true;
  std::vector<std::string> holdout_files;
  double holdout_fraction = 0.01;
  bool skip_bad_rows = false;
  std::string document_separator;
};

// Changes the precision of some linear layers in some steps; what is absent stays as it is.
struct PrecisionRule {
  std::vector<std::string> modules = {};  // globs on module names; empty: all linear layers
  std::optional<GemmPrecision> fprop = std::nullopt;
  std::optional<GemmPrecision> dgrad = std::nullopt;
  std::optional<GemmPrecision> wgrad = std::nullopt;
  std::optional<kernels::Element> gradient = std::nullopt;
  int64_t from_step = 1;   // the first step of the rule
  int64_t until_step = 0;  // its last step; 0: no last one
};

struct RecipeSpec {
  enum class Precision { kFp8, kBf16 } precision = Precision::kFp8;
  std::vector<std::string> keep_bf16;     // globs on module names: a first rule, all three in BF16
  std::vector<PrecisionRule> rules = {};  // in order: a later one wins
};

struct OptimizerSpec {
  double learning_rate = 0;
  double min_learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  double clip_norm = 1.0;  // 0: off
};

struct ScheduleSpec {
  enum class Kind { kWsd, kCosine, kConstant } kind = Kind::kWsd;
  int64_t warmup_steps = 0;
  int64_t decay_steps = 0;
};

struct EvaluationSpec {
  int64_t holdout_tokens = 16384;
  std::string exact_match_file;
  int64_t exact_match_limit = 512;
  int64_t exact_match_max_new_tokens = 32;
};

struct RunSpec {
  ModelSpec model;
  // Folder of a checkpoint of a run that this one extends; empty: none. See Continuation.
  std::string extend_checkpoint = {};
  DataSpec data;
  RecipeSpec recipe;
  OptimizerSpec optimizer;
  ScheduleSpec schedule;
  EvaluationSpec evaluation;
  int64_t micro_batch = 1;
  int64_t gradient_accumulation = 1;
  int64_t steps = 0;
  uint64_t seed = 0;
  int64_t probe_every_steps = 10;  // 0: off
};

}  // namespace octavo::engine
