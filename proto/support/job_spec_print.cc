#include <yaml-cpp/yaml.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/file.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/message.h"
#include "proto/support/job_spec.h"

namespace octavo {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

void EmitMessage(const Message& message, YAML::Emitter* out);

// The shortest text that reads back as the same double, as 0.1 and not 0.10000000000000001.
std::string ShortestDouble(double value) {
  for (int digits = 1; digits < 17; ++digits) {
    const std::string text = absl::StrFormat("%.*g", digits, value);
    if (std::stod(text) == value) return text;
  }
  return absl::StrFormat("%.17g", value);
}

void EmitValue(const Message& message, const FieldDescriptor* field, int index,
               YAML::Emitter* out) {
  const auto* reflection = message.GetReflection();
  const bool repeated = field->is_repeated();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE:
      EmitMessage(repeated ? reflection->GetRepeatedMessage(message, field, index)
                           : reflection->GetMessage(message, field),
                  out);
      return;
    case FieldDescriptor::CPPTYPE_INT32:
      *out << reflection->GetInt32(message, field);
      return;
    case FieldDescriptor::CPPTYPE_INT64:
      *out << reflection->GetInt64(message, field);
      return;
    case FieldDescriptor::CPPTYPE_UINT64:
      *out << reflection->GetUInt64(message, field);
      return;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      *out << ShortestDouble(reflection->GetDouble(message, field));
      return;
    case FieldDescriptor::CPPTYPE_BOOL:
      *out << reflection->GetBool(message, field);
      return;
    default:
      *out << YAML::DoubleQuoted
           << (repeated ? reflection->GetRepeatedString(message, field, index)
                        : reflection->GetString(message, field));
  }
}

void EmitMessage(const Message& message, YAML::Emitter* out) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  *out << YAML::BeginMap;
  for (const FieldDescriptor* field : fields) {
    *out << YAML::Key << field->name() << YAML::Value;
    if (!field->is_repeated()) {
      EmitValue(message, field, -1, out);
      continue;
    }
    *out << YAML::BeginSeq;
    for (int i = 0; i < message.GetReflection()->FieldSize(message, field); ++i) {
      EmitValue(message, field, i, out);
    }
    *out << YAML::EndSeq;
  }
  *out << YAML::EndMap;
}

}  // namespace

std::string PrintJobSpec(const v1::JobSpec& spec) {
  YAML::Emitter out;
  EmitMessage(spec, &out);
  return absl::StrCat(out.c_str(), "\n");
}

std::string JoinViolations(const std::vector<v1::Violation>& violations) {
  return absl::StrJoin(violations, "; ", [](std::string* out, const v1::Violation& violation) {
    absl::StrAppend(out, violation.field(), ": ", violation.message());
  });
}

std::string JobSpecSha256(const v1::JobSpec& spec) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    spec.SerializeToCodedStream(&coded);
  }
  return Sha256Of(bytes);
}

}  // namespace octavo
