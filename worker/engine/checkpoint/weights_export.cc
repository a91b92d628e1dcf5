#include "worker/engine/checkpoint/weights_export.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "base/strict_json.h"
#include "kernels/numerics/bfloat16.h"
#include "worker/engine/checkpoint/chunks.h"
#include "worker/engine/checkpoint/pending_folder.h"
#include "worker/engine/checkpoint/safetensors_writer.h"

namespace octavo::engine {
namespace {

constexpr char kConfig[] = "config.json";
constexpr char kGenerationConfig[] = "generation_config.json";
constexpr int64_t kBfloat16Bytes = 2;

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
std::vector<std::vector<const ParameterSpec*>> CutIntoShards(const ParameterLayout& layout,
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
  const auto shards = CutIntoShards(parameters.layout(), shard_bytes);
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

// Servers take stop tokens from generation_config.json: where the model has none, the config's are
// written.
std::string GenerationConfig(const nlohmann::ordered_json& config) {
  nlohmann::ordered_json generation = {{"_from_model_config", true}};
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    if (config.contains(key) && !config[key].is_null()) generation[key] = config[key];
  }
  return generation.dump(2) + "\n";
}

// Everything but the weights.
absl::Status WriteModelFiles(const ModelFiles& model, const PendingFolder& folder) {
  const std::string* text = model.Find(kConfig);
  CHECK(text != nullptr);
  ASSIGN_OR_RETURN(nlohmann::ordered_json config, ParseOrderedJson(*text, kConfig));
  config["torch_dtype"] = "bfloat16";
  if (config.contains("dtype")) config["dtype"] = "bfloat16";  // the newer spelling of the same key
  for (const ModelFile& file : model.files()) {
    const std::string content = file.name == kConfig ? config.dump(2) + "\n" : file.content;
    RETURN_IF_ERROR(WritePendingFile(folder, file.name, content).status());
  }
  if (model.Find(kGenerationConfig) != nullptr) return absl::OkStatus();
  return WritePendingFile(folder, kGenerationConfig, GenerationConfig(config)).status();
}

}  // namespace

absl::Status ExportWeights(const ExportOptions& options, const Parameters& parameters,
                           kernels::Backend* backend, const std::string& folder) {
  ASSIGN_OR_RETURN(PendingFolder pending, PendingFolder::Create(folder));
  RETURN_IF_ERROR(WriteModelFiles(*options.model, pending));
  RETURN_IF_ERROR(WriteWeights(pending, parameters, options.shard_bytes, backend));
  return pending.Publish();
}

}  // namespace octavo::engine
