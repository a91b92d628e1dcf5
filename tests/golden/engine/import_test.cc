// Folders that transformers wrote become master weights, bit for bit.
#include <filesystem>
#include <iostream>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/numerics/bfloat16.h"
#include "tests/support/golden.h"
#include "tests/support/safetensors.h"
#include "worker/engine/checkpoint/weights_import.h"
#include "worker/engine/model/config.h"

namespace octavo::engine {
namespace {

void ExpectEqualWeights(const Parameters& parameters, kernels::Backend* backend,
                        const octavo::testing_support::Safetensors& golden) {
  for (const ParameterSpec& spec : parameters.layout().parameters) {
    std::vector<float> values(static_cast<size_t>(spec.count()));
    ASSERT_TRUE(
        backend->CopyOut(values.data(), parameters.master() + spec.offset, 4 * spec.count()).ok());
    ASSERT_EQ(golden.at(spec.name).dtype, "BF16");
    const auto expected = golden.at(spec.name).As<kernels::bfloat16>();
    ASSERT_EQ(values.size(), expected.size()) << spec.name;
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], kernels::ToFloat(expected[i])) << spec.name << " " << i;
    }
  }
}

TEST(GoldenImport, FoldersOfEveryFamilyBecomeMasterWeights) {
  OCTAVO_SKIP_WITHOUT_GOLDEN("models");
  int compared = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(octavo::testing_support::GoldenFolder("models"))) {
    const std::string folder = entry.path();
    if (!std::filesystem::exists(folder + "/model.safetensors")) continue;
    SCOPED_TRACE(folder);
    const absl::StatusOr<ModelConfig> config = ReadModelConfig(folder);
    if (!config.ok()) {
      std::cout << "skipped: " << folder << ": " << config.status().message() << "\n";
      continue;
    }
    const auto backend = *kernels::OpenBackend("cpu", {.memory_bytes = 0, .threads = 1});
    const Parameters parameters =
        *Parameters::Create(LayOutParameters(config->shape), backend.get());
    const absl::StatusOr<SafetensorsFolder> tensors = SafetensorsFolder::Open(folder);
    ASSERT_TRUE(tensors.ok()) << tensors.status();
    std::vector<std::string> warnings;
    const absl::Status imported = ImportWeights(*tensors, parameters, backend.get(), &warnings);
    ASSERT_TRUE(imported.ok()) << imported;
    ExpectEqualWeights(parameters, backend.get(),
                       octavo::testing_support::Safetensors(folder + "/model.safetensors"));
    ++compared;
  }
  EXPECT_GT(compared, 0);
}

}  // namespace
}  // namespace octavo::engine
