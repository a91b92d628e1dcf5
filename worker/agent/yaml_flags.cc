#include "worker/agent/yaml_flags.h"

#include <yaml-cpp/yaml.h>

#include <set>

#include "absl/strings/str_cat.h"

namespace octavo::agent {
namespace {

absl::Status Malformed(const YAML::Mark& mark, const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat("line ", mark.line + 1, " of the configuration: ", what));
}

absl::StatusOr<Flag> ParseEntry(const YAML::Node& key, const YAML::Node& value) {
  if (!key.IsScalar()) return Malformed(key.Mark(), "a key must be a name");
  Flag flag{.name = key.Scalar(), .values = {}};
  if (value.IsScalar()) {
    flag.values.push_back(value.Scalar());
    return flag;
  }
  if (!value.IsSequence()) {
    return Malformed(value.Mark(), absl::StrCat("\"", flag.name, "\" must have one value"));
  }
  for (const YAML::Node& item : value) {
    if (!item.IsScalar()) {
      return Malformed(item.Mark(), absl::StrCat("\"", flag.name, "\" must list plain values"));
    }
    flag.values.push_back(item.Scalar());
  }
  return flag;
}

}  // namespace

absl::StatusOr<std::vector<Flag>> ParseYamlFlags(const std::string& text) {
  std::vector<Flag> flags;
  try {
    const YAML::Node root = YAML::Load(text);
    if (root.IsNull()) return flags;
    if (!root.IsMap()) return Malformed(root.Mark(), "write `name: value` lines");
    std::set<std::string> seen;
    for (const auto& entry : root) {
      absl::StatusOr<Flag> flag = ParseEntry(entry.first, entry.second);
      if (!flag.ok()) return flag.status();
      if (!seen.insert(flag->name).second) {
        return Malformed(entry.first.Mark(), absl::StrCat("\"", flag->name, "\" is given twice"));
      }
      flags.push_back(*std::move(flag));
    }
  } catch (const YAML::Exception& malformed) {
    return Malformed(malformed.mark, malformed.msg);
  }
  return flags;
}

}  // namespace octavo::agent
