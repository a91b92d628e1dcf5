// A folder of the model goldens: weights, a batch and what an independent implementation made of
// them.
#pragma once

#include <fstream>
#include <string>

#include "nlohmann/json.hpp"
#include "tests/support/golden.h"
#include "tests/support/model_fixture.h"
#include "tests/support/safetensors.h"

namespace octavo::testing_support {

inline Values Widen(const Tensor& tensor) {
  if (tensor.dtype == "F32") {
    const std::vector<float> values = tensor.As<float>();
    return Values(values.begin(), values.end());
  }
  Values values;
  for (const kernels::bfloat16 value : tensor.As<kernels::bfloat16>()) {
    values.push_back(kernels::ToFloat(value));
  }
  return values;
}

// Rows of one document each. Labels are not shifted: the label of a position is what the one before
// it must predict.
inline engine::Batch BatchOf(const std::vector<int32_t>& ids, const std::vector<int32_t>& labels,
                             int64_t rows) {
  engine::Batch batch;
  batch.rows = rows;
  batch.sequence = static_cast<int64_t>(ids.size()) / rows;
  batch.ids = ids;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t t = 0; t < batch.sequence; ++t) {
      const int64_t i = row * batch.sequence + t;
      batch.targets.push_back(t + 1 < batch.sequence ? labels[i + 1] : engine::kMasked);
      batch.positions.push_back(static_cast<int32_t>(t));
      batch.attend_from.push_back(static_cast<int32_t>(row * batch.sequence));
    }
  }
  return batch;
}

inline ValueMap ReadWeights(const std::string& path) {
  ValueMap weights;
  const Safetensors file(path);
  for (const auto& [name, tensor] : file.tensors()) weights[name] = Widen(tensor);
  return weights;
}

inline nlohmann::json ReadJson(const std::string& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

struct GoldenModel {
  explicit GoldenModel(const std::string& folder)
      : config(*engine::ReadModelConfig(folder)),
        weights(ReadWeights(folder + "/model.safetensors")),
        tensors(folder + "/golden.safetensors"),
        summary(ReadJson(folder + "/golden.json")),
        batch(BatchOf(tensors.at("input_ids").As<int32_t>(), tensors.at("labels").As<int32_t>(),
                      tensors.at("input_ids").shape.at(0))) {}

  double Number(const std::string& key) const { return summary.at(key).get<double>(); }
  // e(T) that the independent implementation had in this kind of run.
  double ListedError(const std::string& tensor, const std::string& kind) const {
    return summary.at("gradient_relative_error").at(tensor).at(kind).get<double>();
  }
  Values Gradient(const std::string& tensor) const { return Widen(tensors.at("grad." + tensor)); }
  bool is_matrix(const std::string& tensor) const {
    return tensors.at("grad." + tensor).shape.size() == 2;
  }

  engine::ModelConfig config;
  ValueMap weights;
  Safetensors tensors;
  nlohmann::json summary;
  engine::Batch batch;
};

}  // namespace octavo::testing_support
