// Messages as JSON with the field names of the .proto files. 64-bit integers are strings, as
// protobuf's JSON mapping has them.
#pragma once

#include <string>

#include "google/protobuf/message.h"

namespace octavo::client {

// An indented document, ends with a line end.
std::string JsonDocument(const google::protobuf::Message& message);
// On one line, ends with a line end.
std::string JsonLine(const google::protobuf::Message& message);

}  // namespace octavo::client
