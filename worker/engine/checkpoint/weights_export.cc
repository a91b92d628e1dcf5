#include "worker/engine/checkpoint/weights_export.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/file.h"
#include "base/status.h"
#include "base/strict_json.h"
#include "kernels/numerics/bfloat16.h"
#include "worker/engine/checkpoint/chunks.h"
#include "worker/engine/checkpoint/pending_folder.h"
#include "worker/engine/checkpoint/safetensors_writer.h"

namespace octavo::engine {
namespace {

constexpr int64_t kMaxConfigBytes = 1 << 24;
constexpr int64_t kMaxTokenizerBytes = 1 << 30;
constexpr int64_t kBfloat16Bytes = 2;

constexpr const char* kTokenizerFiles[] = {
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.json",
    "merges.txt",     "tokenizer.model",       "added_tokens.json",       "chat_template.jinja"};

TensorToWrite Bf16Tensor(const ParameterSpec& spec, const float* master,
                         kernels::Backend* backend) {
  TensorToWrite tensor;
  tensor.name = spec.name;
  tensor.type = TensorType::kBf16;
  tensor.shape = spec.is_matrix() ? std::vector<int64_t>{spec.rows, spec.columns}
                                  : std::vector<int64_t>{spec.columns};
  tensor.produce = [&spec, master, backend](const TensorToWrite::Sink& write) {
    std::vector<kernels::bfloat16> rounded;
    int64_t first = 0;
    return ReadChunks(backend, master + spec.offset, spec.count(),
                      [&](absl::Span<const float> piece) -> absl::Status {
                        RETURN_IF_ERROR(Annotate(CheckFinite(piece, first), spec.name));
                        first += static_cast<int64_t>(piece.size());
                        rounded.clear();
                        for (const float value : piece)
                          rounded.push_back(kernels::ToBfloat16(value));
                        return write({reinterpret_cast<const char*>(rounded.data()),
                                      rounded.size() * sizeof(kernels::bfloat16)});
                      });
  };
  return tensor;
}

// Parameters in model order, cut before a shard would exceed the limit.
std::vector<std::vector<const ParameterSpec*>> PlanShards(const ParameterLayout& layout,
                                                          int64_t shard_bytes) {
  std::vector<std::vector<const ParameterSpec*>> shards(1);
  int64_t bytes = 0;
  for (const ParameterSpec& spec : layout.parameters) {
    const int64_t size = kBfloat16Bytes * spec.count();
    if (bytes + size > shard_bytes && !shards.back().empty()) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().push_back(&spec);
    bytes += size;
  }
  return shards;
}

absl::Status WriteWeights(const PendingFolder& folder, const Parameters& parameters,
                          int64_t shard_bytes, kernels::Backend* backend) {
  const auto shards = PlanShards(parameters.layout(), shard_bytes);
  nlohmann::ordered_json index = {
      {"metadata", {{"total_size", kBfloat16Bytes * parameters.layout().parameter_count}}}};
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = shards.size() == 1 ? "model.safetensors"
                                                : absl::StrFormat("model-%05d-of-%05d.safetensors",
                                                                  i + 1, shards.size());
    std::vector<TensorToWrite> tensors;
    for (const ParameterSpec* spec : shards[i]) {
      tensors.push_back(Bf16Tensor(*spec, parameters.master(), backend));
      index["weight_map"][spec->name] = name;
    }
    RETURN_IF_ERROR(WriteSafetensors(folder, name, std::move(tensors)).status());
  }
  if (shards.size() == 1) return absl::OkStatus();
  return WritePendingFile(folder, "model.safetensors.index.json", index.dump(2) + "\n").status();
}

// Copies `name` if the source has it.
absl::Status CopyIfThere(const std::string& source_folder, const std::string& name,
                         const PendingFolder& folder) {
  const std::string source = absl::StrCat(source_folder, "/", name);
  std::error_code error;
  if (!std::filesystem::exists(source, error)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string content, ReadFile(source, kMaxTokenizerBytes));
  return WritePendingFile(folder, name, content).status();
}

// Servers take stop tokens from generation_config.json: without one in the source, the config's are
// written.
absl::Status WriteGenerationConfig(const std::string& source_folder,
                                   const nlohmann::ordered_json& config,
                                   const PendingFolder& folder) {
  constexpr char kName[] = "generation_config.json";
  std::error_code error;
  if (std::filesystem::exists(absl::StrCat(source_folder, "/", kName), error)) {
    return CopyIfThere(source_folder, kName, folder);
  }
  nlohmann::ordered_json generation = {{"_from_model_config", true}};
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    if (config.contains(key) && !config[key].is_null()) generation[key] = config[key];
  }
  return WritePendingFile(folder, kName, generation.dump(2) + "\n").status();
}

}  // namespace

absl::Status ExportWeights(const ExportOptions& options, const Parameters& parameters,
                           kernels::Backend* backend, const std::string& folder) {
  const std::string config_path = options.source_folder + "/config.json";
  ASSIGN_OR_RETURN(const std::string text, ReadFile(config_path, kMaxConfigBytes));
  ASSIGN_OR_RETURN(nlohmann::ordered_json config, ParseOrderedJson(text, config_path));
  config["torch_dtype"] = "bfloat16";
  if (config.contains("dtype")) config["dtype"] = "bfloat16";  // the newer spelling of the same key

  ASSIGN_OR_RETURN(PendingFolder pending, PendingFolder::Create(folder));
  RETURN_IF_ERROR(WritePendingFile(pending, "config.json", config.dump(2) + "\n").status());
  RETURN_IF_ERROR(WriteGenerationConfig(options.source_folder, config, pending));
  RETURN_IF_ERROR(CopyIfThere(options.source_folder, "LICENSE", pending));
  if (options.copy_tokenizer) {
    for (const char* name : kTokenizerFiles) {
      RETURN_IF_ERROR(CopyIfThere(options.source_folder, name, pending));
    }
  }
  RETURN_IF_ERROR(WriteWeights(pending, parameters, options.shard_bytes, backend));
  return pending.Publish();
}

}  // namespace octavo::engine
