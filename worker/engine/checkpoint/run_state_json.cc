#include "worker/engine/checkpoint/run_state_json.h"

#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "worker/engine/checkpoint/strict_json.h"

namespace octavo::engine {
namespace {

using nlohmann::ordered_json;

constexpr char kFormat[] = "octavo-training-state";
constexpr int64_t kFormatVersion = 1;

// JSON has no NaN and no Inf; a loss that is not finite becomes null.
ordered_json NumberOrNull(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr);
}

ordered_json PrintHoldout(const HoldoutReport& holdout) {
  ordered_json json = {{"tokens", holdout.tokens},
                       {"tokens_sha256", holdout.tokens_sha256},
                       {"loss_bf16", NumberOrNull(holdout.loss_bf16)}};
  if (holdout.loss_fp8.has_value()) json["loss_fp8"] = NumberOrNull(*holdout.loss_fp8);
  return json;
}

// Reads keys of one object and remembers the first that is not as it must be.
class Reader {
 public:
  explicit Reader(const ordered_json& object) : object_(object) {}

  bool Has(const char* key) const { return object_.contains(key); }

  int64_t Integer(const char* key) {
    return Take(key, &ordered_json::is_number_integer, int64_t{0});
  }
  std::string Text(const char* key) { return Take(key, &ordered_json::is_string, std::string()); }
  double Number(const char* key) {
    if (Has(key) && object_[key].is_null()) return std::numeric_limits<double>::quiet_NaN();
    return Take(key, &ordered_json::is_number, 0.0);
  }
  const std::string& wrong_key() const { return wrong_key_; }

 private:
  template <typename T>
  T Take(const char* key, bool (ordered_json::*is_right)() const noexcept, T otherwise) {
    if (Has(key) && (object_[key].*is_right)()) return object_[key].get<T>();
    if (wrong_key_.empty()) wrong_key_ = key;
    return otherwise;
  }
  const ordered_json& object_;
  std::string wrong_key_;
};

HoldoutReport ParseHoldout(Reader* reader) {
  HoldoutReport holdout;
  holdout.tokens = reader->Integer("tokens");
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
  ordered_json json = {{"format", kFormat},
                       {"format_version", kFormatVersion},
                       {"step", state.step},
                       {"applied_updates", state.applied_updates},
                       {"samples", state.samples},
                       {"total_tokens", state.total_tokens},
                       {"nonfinite_steps", state.nonfinite_steps},
                       {"consecutive_nonfinite_steps", state.consecutive_nonfinite_steps},
                       {"empty_steps", state.empty_steps}};
  if (state.initial_holdout.has_value()) {
    json["initial_holdout"] = PrintHoldout(*state.initial_holdout);
  }
  json["fingerprint"] = ordered_json::object();
  for (const auto& [field, value] : state.fingerprint) json["fingerprint"][field] = value;
  return json.dump(2) + "\n";
}

absl::StatusOr<RunState> ParseRunState(absl::string_view text, const std::string& path) {
  const absl::StatusOr<ordered_json> json = ParseStrictJson(text, path);
  if (!json.ok()) return absl::DataLossError(json.status().message());
  Reader reader(*json);
  if (reader.Text("format") != kFormat || reader.Integer("format_version") != kFormatVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": not a training state of format version ", kFormatVersion,
                     "; resume with the version of the program that wrote it"));
  }
  RunState state;
  state.step = reader.Integer("step");
  state.applied_updates = reader.Integer("applied_updates");
  state.samples = reader.Integer("samples");
  state.total_tokens = reader.Integer("total_tokens");
  state.nonfinite_steps = reader.Integer("nonfinite_steps");
  state.consecutive_nonfinite_steps = reader.Integer("consecutive_nonfinite_steps");
  state.empty_steps = reader.Integer("empty_steps");
  if (!reader.wrong_key().empty()) return WrongKey(path, reader.wrong_key());
  if (json->contains("initial_holdout")) {
    Reader holdout((*json)["initial_holdout"]);
    state.initial_holdout = ParseHoldout(&holdout);
    if (!holdout.wrong_key().empty()) {
      return WrongKey(path, "initial_holdout." + holdout.wrong_key());
    }
  }
  if (!json->contains("fingerprint") || !(*json)["fingerprint"].is_object()) {
    return WrongKey(path, "fingerprint");
  }
  for (const auto& [field, value] : (*json)["fingerprint"].items()) {
    if (!value.is_string()) return WrongKey(path, "fingerprint." + field);
    state.fingerprint[field] = value.get<std::string>();
  }
  return state;
}

}  // namespace octavo::engine
