#include "worker/trainer/report.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace octavo::trainer {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using Json = nlohmann::ordered_json;

Json MessageToJson(const Message& message);

// JSON has no NaN and no infinity; null says that there is no number.
Json Number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json ScalarToJson(const Message& message, const FieldDescriptor* field) {
  const auto* reflection = message.GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection->GetInt32(message, field);
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection->GetInt64(message, field);
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection->GetUInt64(message, field);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return Number(reflection->GetDouble(message, field));
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection->GetBool(message, field);
    case FieldDescriptor::CPPTYPE_ENUM:
      return reflection->GetEnum(message, field)->name();
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return MessageToJson(reflection->GetMessage(message, field));
    default:
      return reflection->GetString(message, field);
  }
}

// Repeated fields of our reports hold text or messages.
Json RepeatedToJson(const Message& message, const FieldDescriptor* field) {
  const auto* reflection = message.GetReflection();
  Json values = Json::array();
  for (int i = 0; i < reflection->FieldSize(message, field); ++i) {
    values.push_back(field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE
                         ? MessageToJson(reflection->GetRepeatedMessage(message, field, i))
                         : Json(reflection->GetRepeatedString(message, field, i)));
  }
  return values;
}

Json MessageToJson(const Message& message) {
  Json object = Json::object();
  const auto* descriptor = message.GetDescriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* field = descriptor->field(i);
    if (field->is_repeated()) {
      object[field->name()] = RepeatedToJson(message, field);
    } else if (!field->has_presence() || message.GetReflection()->HasField(message, field)) {
      object[field->name()] = ScalarToJson(message, field);
    }
  }
  return object;
}

void AddNonfinite(const engine::NonfiniteCounts& from, v1::NonfiniteValues* to) {
  to->set_activations(from.of(engine::NonfiniteKind::kActivation));
  to->set_output_gradients(from.of(engine::NonfiniteKind::kOutputGradient));
  to->set_norm_rows(from.of(engine::NonfiniteKind::kNormRow));
  to->set_weights(from.of(engine::NonfiniteKind::kWeight));
  if (from.any())
    to->set_last(absl::StrCat(engine::NameOf(from.first_kind), " of ", from.first_module));
}

void AddHoldout(const engine::FinalReport& from, v1::RunReport* report) {
  if (!from.holdout.has_value()) return;
  v1::Holdout* holdout = report->mutable_holdout();
  holdout->set_tokens(from.holdout->tokens);
  holdout->set_tokens_sha256(from.holdout->tokens_sha256);
  holdout->set_loss_bf16(from.holdout->loss_bf16);
  if (from.holdout->loss_fp8.has_value()) holdout->set_loss_fp8(*from.holdout->loss_fp8);
  if (!from.initial_holdout.has_value()) return;
  holdout->set_initial_loss_bf16(from.initial_holdout->loss_bf16);
  if (from.initial_holdout->loss_fp8.has_value()) {
    holdout->set_initial_loss_fp8(*from.initial_holdout->loss_fp8);
  }
}

}  // namespace

void AddFinalReport(const engine::FinalReport& final_report,
                    const kernels::BackendDescription& backend, v1::RunReport* report) {
  report->set_fp8_gemms(final_report.training_gemms.fp8);
  report->set_bf16_gemms(final_report.training_gemms.bf16);
  report->set_parameters(final_report.parameters);
  report->set_weights_sha256(final_report.weights_sha256);
  for (const std::string& warning : final_report.warnings) report->add_warnings(warning);
  AddNonfinite(final_report.nonfinite, report->mutable_nonfinite());
  AddHoldout(final_report, report);
  if (final_report.exact_match.has_value()) {
    report->mutable_exact_match()->set_correct(final_report.exact_match->correct);
    report->mutable_exact_match()->set_total(final_report.exact_match->total);
  }
  report->set_backend(
      absl::StrCat(backend.name, ": ", backend.device, ", GEMMs by ", backend.matmul));
}

std::string ToJson(const Message& message) {
  return MessageToJson(message).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string CompareWithBaseline(const v1::RunReport& report, const v1::Job& baseline) {
  if (!report.has_holdout() || !baseline.report().has_holdout()) return "";
  const v1::Holdout& ours = report.holdout();
  const v1::Holdout& theirs = baseline.report().holdout();
  if (ours.tokens_sha256() != theirs.tokens_sha256()) {
    return absl::StrCat("baseline ", baseline.id(),
                        " held out other tokens; its held-out loss is not comparable");
  }
  return absl::StrFormat("held-out loss %.6f, of baseline %s %.6f, relative difference %+.3e",
                         ours.loss_bf16(), baseline.id(), theirs.loss_bf16(),
                         (ours.loss_bf16() - theirs.loss_bf16()) / theirs.loss_bf16());
}

}  // namespace octavo::trainer
