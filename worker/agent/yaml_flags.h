// A YAML file as a source of command line flags.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace octavo::agent {

struct Flag {
  std::string name;  // without dashes
  std::vector<std::string> values;
};

// A flat mapping of names to scalars or lists of scalars. INVALID_ARGUMENT names line and key.
absl::StatusOr<std::vector<Flag>> ParseYamlFlags(const std::string& text);

}  // namespace octavo::agent
