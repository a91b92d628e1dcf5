#include "base/status.h"
#include "tests/fuzz/targets.h"
#include "worker/engine/checkpoint/safetensors.h"
#include "worker/engine/data/tokenizer.h"
#include "worker/engine/model/config.h"

namespace octavo::fuzz {

// A header that is accepted covers the data exactly once.
void Safetensors(absl::string_view bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  const auto length = engine::SafetensorsHeaderLength(bytes.substr(0, 8), size, "file");
  if (!length.ok()) return;
  CHECK(*length >= 0 && *length <= size - 8);
  const auto header = engine::ParseSafetensorsHeader(bytes.substr(0, 8 + *length), size, "file");
  if (!header.ok()) {
    CHECK(header.status().code() == absl::StatusCode::kInvalidArgument);
    return;
  }
  int64_t position = 0;
  for (const engine::TensorEntry& tensor : header->tensors) {
    CHECK(tensor.begin == position && tensor.end >= tensor.begin);
    position = tensor.end;
  }
  CHECK(header->data_start() + position == size);
}

// A tokenizer that is accepted gives ids that it has, and loses no byte without counting it.
void Tokenizer(absl::string_view bytes) {
  const auto tokenizer = engine::LoadTokenizerJson(bytes, 0);
  if (!tokenizer.ok()) return;
  std::vector<int32_t> ids;
  for (const bool added_tokens : {false, true}) {
    (*tokenizer)
        ->Encode("Ab 12  don't \xC3\xA9\n\xF0\x9F\x99\x82<|x|>", {.added_tokens = added_tokens},
                 &ids);
  }
  for (const int32_t id : ids) CHECK(id >= 0 && id < (*tokenizer)->vocabulary_size());
  static_cast<void>((*tokenizer)->Decode(ids));
}

// A shape that is accepted can be computed with.
void Config(absl::string_view bytes) {
  const auto config = engine::ParseModelConfig(bytes);
  if (!config.ok()) return;
  const engine::ModelShape& shape = config->shape;
  CHECK(shape.layers > 0 && shape.hidden > 0 && shape.intermediate > 0 && shape.vocabulary > 0);
  CHECK(shape.heads > 0 && shape.kv_heads > 0 && shape.head_dim > 0);
  CHECK(shape.heads % shape.kv_heads == 0 && shape.head_dim % 2 == 0);
  CHECK(config->max_positions > 0 && config->rope.theta > 0);
}

}  // namespace octavo::fuzz
