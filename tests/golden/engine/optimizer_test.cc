// Schedules, clipping and AdamW against Megatron's scheduler and torch.optim.AdamW in float64.
#include "worker/engine/optimizer/optimizer.h"

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "tests/support/golden.h"
#include "tests/support/optimizer_step.h"
#include "tests/support/safetensors.h"
#include "worker/engine/optimizer/schedule.h"

namespace octavo::engine {
namespace {

using ::octavo::testing_support::GoldenFolder;
using ::octavo::testing_support::OptimizerSteps;
using ::octavo::testing_support::Safetensors;
using ::octavo::testing_support::Tensor;

nlohmann::json ReadJson(const std::string& name) {
  std::ifstream file(GoldenFolder("optimizer/" + name));
  return nlohmann::json::parse(file);
}

// Numbers that JSON cannot hold are strings there.
double Number(const nlohmann::json& value) {
  return value.is_string() ? std::stod(value.get<std::string>()) : value.get<double>();
}

// False: a shape of schedule that the project does not offer.
bool SpecOf(const nlohmann::json& one, RunSpec* spec) {
  const double warmup = one["warmup"];
  if (warmup != std::floor(warmup)) return false;
  if (one["style"] == "WSD" && one["wsd_style"] != "cosine") return false;
  if (one["style"] == "linear") return false;
  spec->optimizer.learning_rate = one["max_lr"];
  spec->optimizer.min_learning_rate = one["min_lr"];
  spec->steps = one["total"];
  spec->schedule.warmup_steps = static_cast<int64_t>(warmup);
  spec->schedule.kind = ScheduleSpec::Kind::kWsd;
  if (one["style"] == "WSD") spec->schedule.decay_steps = one["wsd_decay"];
  if (one["style"] == "cosine") spec->schedule.kind = ScheduleSpec::Kind::kCosine;
  if (one["style"] == "constant") spec->schedule.kind = ScheduleSpec::Kind::kConstant;
  return true;
}

TEST(GoldenOptimizer, SchedulesGiveMegatronsRateOfEachStep) {
  OCTAVO_SKIP_WITHOUT_GOLDEN("optimizer/schedules.json");
  int compared = 0;
  const nlohmann::json file = ReadJson("schedules.json");
  for (const auto& one : file["cases"]) {
    SCOPED_TRACE(one["name"]);
    RunSpec spec;
    if (!one.contains("lr") || !SpecOf(one, &spec)) continue;
    for (const auto& point : one["lr"]) {
      const int64_t step = point[0];
      if (step == 0) continue;  // no step is number 0
      const double expected = point[1];
      EXPECT_NEAR(LearningRate(spec, step), expected, 1e-12 * expected) << "step " << step;
      ++compared;
    }
  }
  EXPECT_GT(compared, 100);
}

// A backend and parameters of the golden's tensors.
class GoldenParameters {
 public:
  explicit GoldenParameters(const std::vector<std::pair<std::string, const Tensor*>>& tensors) {
    for (const auto& [name, tensor] : tensors) {
      const bool matrix = tensor->shape.size() == 2;
      layout_.parameters.push_back({.name = name,
                                    .module = name,
                                    .kind = matrix ? ParameterKind::kLinear : ParameterKind::kNorm,
                                    .rows = matrix ? tensor->shape[0] : 1,
                                    .columns = matrix ? tensor->shape[1] : tensor->count(),
                                    .offset = layout_.elements});
      layout_.elements += (tensor->count() + 63) / 64 * 64;
      layout_.parameter_count += tensor->count();
    }
    backend_ = *kernels::OpenBackend("cpu", {.threads = 1});
    parameters_.emplace(*Parameters::Create(layout_, backend_.get()));
  }

  kernels::Backend* backend() { return backend_.get(); }
  Parameters& operator*() { return *parameters_; }
  const ParameterLayout& layout() const { return layout_; }

  void Store(float* array, const std::string& name, const std::vector<float>& values) {
    const ParameterSpec& spec = Find(name);
    ASSERT_EQ(static_cast<int64_t>(values.size()), spec.count());
    ASSERT_TRUE(backend_->CopyIn(array + spec.offset, values.data(), 4 * spec.count()).ok());
  }
  std::vector<float> Fetch(const float* array, const std::string& name) {
    const ParameterSpec& spec = Find(name);
    std::vector<float> values(static_cast<size_t>(spec.count()));
    EXPECT_TRUE(backend_->CopyOut(values.data(), array + spec.offset, 4 * spec.count()).ok());
    return values;
  }

 private:
  const ParameterSpec& Find(const std::string& name) const {
    for (const ParameterSpec& spec : layout_.parameters) {
      if (spec.name == name) return spec;
    }
    std::abort();
  }
  ParameterLayout layout_;
  std::unique_ptr<kernels::Backend> backend_;
  std::optional<Parameters> parameters_;
};

std::string StepName(size_t step) { return (step < 10 ? "0" : "") + std::to_string(step); }

// max |a - b| where each element may differ by bound(b).
template <typename Bound>
void ExpectNear(const std::vector<float>& a, const std::vector<double>& b, Bound bound) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], bound(b[i])) << "element " << i;
}

double LargestOf(const std::vector<double>& values) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::fabs(value));
  return largest;
}

void ExpectState(GoldenParameters* parameters, const Safetensors& golden, const std::string& step,
                 double highest_rate) {
  for (const ParameterSpec& spec : parameters->layout().parameters) {
    SCOPED_TRACE(spec.name + " after step " + step);
    const auto expected = [&](const char* what) {
      return golden.at(std::string("f64/") + what + "/" + step + "/" + spec.name).As<double>();
    };
    ExpectNear(parameters->Fetch((**parameters).master(), spec.name), expected("param"),
               [&](double p) { return 2e-6 * (std::fabs(p) + highest_rate); });
    const std::vector<double> m = expected("exp_avg");
    ExpectNear(parameters->Fetch((**parameters).exp_avg(), spec.name), m,
               [&](double) { return 5e-7 * LargestOf(m); });
    const std::vector<double> v = expected("exp_avg_sq");
    ExpectNear(parameters->Fetch((**parameters).exp_avg_sq(), spec.name), v,
               [&](double) { return 1e-6 * LargestOf(v); });
  }
}

OptimizerSpec SpecOfCase(const nlohmann::json& file, const nlohmann::json& one) {
  OptimizerSpec spec;
  spec.beta1 = file["betas"][0];
  spec.beta2 = file["betas"][1];
  spec.epsilon = file["eps"];
  spec.weight_decay = file["weight_decay"]["2-D"];
  spec.clip_norm = one["max_norm"].is_null() ? 0 : one["max_norm"].get<double>();
  return spec;
}

void RunAdamWCase(const nlohmann::json& file, const nlohmann::json& one) {
  const Safetensors golden(GoldenFolder("optimizer/" + one["file"].get<std::string>()));
  std::vector<std::pair<std::string, const Tensor*>> initial;
  for (const auto& [name, tensor] : golden.tensors()) {
    if (name.rfind("init/", 0) == 0) initial.emplace_back(name.substr(5), &tensor);
  }
  GoldenParameters parameters(initial);
  for (const auto& [name, tensor] : initial) {
    parameters.Store((*parameters).master(), name, tensor->As<float>());
  }
  OptimizerSteps optimizer(SpecOfCase(file, one), parameters.layout(), parameters.backend());
  double highest_rate = 0;
  for (const auto& step : one["steps"]) highest_rate = std::max<double>(highest_rate, step["lr"]);
  for (size_t i = 0; i < one["steps"].size(); ++i) {
    const nlohmann::json& step = one["steps"][i];
    const std::string number = StepName(i + 1);
    for (const auto& [name, tensor] : initial) {
      parameters.Store((*parameters).gradient(), name,
                       golden.at("grad/" + number + "/" + name).As<float>());
    }
    const kernels::StepState state = optimizer.Step(*parameters, step["lr"]);
    const double norm = state.gradient_norm;
    const double expected_norm = Number(step["pre_clip_norm"]);
    EXPECT_EQ(std::isfinite(norm), step["skipped"] == false);
    if (std::isfinite(norm)) {
      EXPECT_NEAR(norm, expected_norm, 1e-12 * expected_norm);
    }
    EXPECT_EQ(state.applied_updates, step["applied_steps"]);
    ExpectState(&parameters, golden, number, highest_rate);
  }
}

TEST(GoldenOptimizer, AdamWFollowsTorchInFloat64) {
  OCTAVO_SKIP_WITHOUT_GOLDEN("optimizer/adamw.json");
  const nlohmann::json file = ReadJson("adamw.json");
  int compared = 0;
  for (const auto& [name, one] : file["cases"].items()) {
    // Moments are float32 here.
    if (name == "bf16_moments" ||
        !std::filesystem::exists(GoldenFolder("optimizer/" + one["file"].get<std::string>()))) {
      continue;
    }
    SCOPED_TRACE(name);
    RunAdamWCase(file, one);
    ++compared;
  }
  EXPECT_GT(compared, 0);
}

TEST(GoldenOptimizer, GradientNormAndClippingAreExactInFloat64) {
  OCTAVO_SKIP_WITHOUT_GOLDEN("optimizer/grad_norm.json");
  const Safetensors golden(GoldenFolder("optimizer/grad_norm.safetensors"));
  int compared = 0;
  const nlohmann::json file = ReadJson("grad_norm.json");
  for (const auto& one : file["cases"]) {
    SCOPED_TRACE(one["name"]);
    std::vector<std::pair<std::string, const Tensor*>> tensors;
    for (const std::string name : one["tensors"]) {
      if (golden.at(name).dtype == "F32") tensors.emplace_back(name, &golden.at(name));
    }
    if (tensors.size() != one["tensors"].size()) continue;  // gradients are float32 here
    GoldenParameters parameters(tensors);
    for (const auto& [name, tensor] : tensors) {
      parameters.Store((*parameters).gradient(), name, tensor->As<float>());
    }
    OptimizerSteps clipped({.clip_norm = 1}, parameters.layout(), parameters.backend());
    OptimizerSteps free({.clip_norm = 0}, parameters.layout(), parameters.backend());
    const kernels::StepState state = clipped.Step(*parameters, 0);
    const double norm = state.gradient_norm;
    ++compared;
    if (one["finite"] == false) {
      EXPECT_FALSE(std::isfinite(norm));
      continue;
    }
    const double expected = Number(one["norm"]);
    EXPECT_NEAR(norm, expected, 1e-12 * expected);
    const double coefficient = Number(one["clip_coefficient_at_1"]);
    EXPECT_NEAR(state.gradient_scale, coefficient, 1e-12 * coefficient);
    EXPECT_EQ(free.Step(*parameters, 0).gradient_scale, 1.0);
  }
  EXPECT_GT(compared, 0);
}

}  // namespace
}  // namespace octavo::engine
