#include "client/render/json.h"

#include <google/protobuf/util/json_util.h>

#include "absl/strings/ascii.h"
#include "base/status.h"

namespace octavo::client {
namespace {

std::string Print(const google::protobuf::Message& message, bool indented) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = indented;
  options.preserve_proto_field_names = true;
  std::string text;
  // Fails only for Any messages of unknown type, which the contract does not have.
  CHECK(google::protobuf::util::MessageToJsonString(message, &text, options).ok());
  absl::StripTrailingAsciiWhitespace(&text);
  return text + "\n";
}

}  // namespace

std::string JsonDocument(const google::protobuf::Message& message) { return Print(message, true); }

std::string JsonLine(const google::protobuf::Message& message) { return Print(message, false); }

}  // namespace octavo::client
