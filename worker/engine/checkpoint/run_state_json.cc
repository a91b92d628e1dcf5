#include "worker/engine/checkpoint/run_state_json.h"

#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/strict_json.h"

namespace octavo::engine {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr char kFormat[] = "octavo-training-state";
constexpr int64_t kFormatVersion = 2;
constexpr uint64_t kMostCounted = std::numeric_limits<int64_t>::max();

// JSON has no NaN and no Inf; a loss that is not finite becomes null.
ordered_json NumberOrNull(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr);
}

ordered_json PrintHoldout(const HoldoutReport& holdout) {
  ordered_json printed = {{"tokens", holdout.tokens},
                          {"tokens_sha256", holdout.tokens_sha256},
                          {"loss_bf16", NumberOrNull(holdout.loss_bf16)}};
  if (holdout.loss_fp8.has_value()) printed["loss_fp8"] = NumberOrNull(*holdout.loss_fp8);
  return printed;
}

// Reads keys of one object and remembers the first that is not as it must be.
class StateReader {
 public:
  explicit StateReader(const json& object) : object_(object) {}

  bool Has(const char* key) const { return object_.contains(key); }

  // Every integer of a state counts something.
  int64_t Count(const char* key) {
    if (Has(key) && object_[key].is_number_unsigned() &&
        object_[key].get<uint64_t>() <= kMostCounted) {
      return object_[key].get<int64_t>();
    }
    return Wrong(key, int64_t{0});
  }
  std::string Text(const char* key) {
    if (Has(key) && object_[key].is_string()) return object_[key].get<std::string>();
    return Wrong(key, std::string());
  }
  double Number(const char* key) {
    if (Has(key) && object_[key].is_null()) return std::numeric_limits<double>::quiet_NaN();
    if (Has(key) && object_[key].is_number()) return object_[key].get<double>();
    return Wrong(key, 0.0);
  }
  const std::string& wrong_key() const { return wrong_key_; }

 private:
  template <typename T>
  T Wrong(const char* key, T otherwise) {
    if (wrong_key_.empty()) wrong_key_ = key;
    return otherwise;
  }
  const json& object_;
  std::string wrong_key_;
};

HoldoutReport ParseHoldout(StateReader* reader) {
  HoldoutReport holdout;
  holdout.tokens = reader->Count("tokens");
  holdout.tokens_sha256 = reader->Text("tokens_sha256");
  holdout.loss_bf16 = reader->Number("loss_bf16");
  if (reader->Has("loss_fp8")) holdout.loss_fp8 = reader->Number("loss_fp8");
  return holdout;
}

absl::Status WrongKey(const std::string& path, const std::string& key) {
  return absl::DataLossError(
      absl::StrCat(path, ": key \"", key, "\" is missing or not of its type"));
}

}  // namespace

std::string PrintRunState(const RunState& state) {
  ordered_json printed = {{"format", kFormat},
                          {"format_version", kFormatVersion},
                          {"step", state.step},
                          {"applied_updates", state.applied_updates},
                          {"samples", state.samples},
                          {"total_tokens", state.total_tokens},
                          {"nonfinite_steps", state.nonfinite_steps},
                          {"consecutive_nonfinite_steps", state.consecutive_nonfinite_steps},
                          {"empty_steps", state.empty_steps}};
  if (state.initial_holdout.has_value()) {
    printed["initial_holdout"] = PrintHoldout(*state.initial_holdout);
  }
  printed["fingerprint"] = ordered_json::object();
  for (const auto& [field, value] : state.fingerprint) printed["fingerprint"][field] = value;
  return printed.dump(2) + "\n";
}

absl::StatusOr<RunState> ParseRunState(absl::string_view text, const std::string& path) {
  const absl::StatusOr<json> parsed = ParseStrictJson(text, path);
  if (!parsed.ok()) return absl::DataLossError(parsed.status().message());
  StateReader reader(*parsed);
  if (reader.Text("format") != kFormat || reader.Count("format_version") != kFormatVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": not a training state of format version ", kFormatVersion,
                     "; resume with the version of the program that wrote it"));
  }
  RunState state;
  state.step = reader.Count("step");
  state.applied_updates = reader.Count("applied_updates");
  state.samples = reader.Count("samples");
  state.total_tokens = reader.Count("total_tokens");
  state.nonfinite_steps = reader.Count("nonfinite_steps");
  state.consecutive_nonfinite_steps = reader.Count("consecutive_nonfinite_steps");
  state.empty_steps = reader.Count("empty_steps");
  if (!reader.wrong_key().empty()) return WrongKey(path, reader.wrong_key());
  if (parsed->contains("initial_holdout")) {
    StateReader holdout((*parsed)["initial_holdout"]);
    state.initial_holdout = ParseHoldout(&holdout);
    if (!holdout.wrong_key().empty()) {
      return WrongKey(path, "initial_holdout." + holdout.wrong_key());
    }
  }
  if (!parsed->contains("fingerprint") || !(*parsed)["fingerprint"].is_object()) {
    return WrongKey(path, "fingerprint");
  }
  for (const auto& [field, value] : (*parsed)["fingerprint"].items()) {
    if (!value.is_string()) return WrongKey(path, "fingerprint." + field);
    state.fingerprint[field] = value.get<std::string>();
  }
  return state;
}

}  // namespace octavo::engine
