// YAML to JobSpec by reflection: the proto is the only list of field names.
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/utf8.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "proto/support/job_spec.h"

namespace octavo {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

using Violations = std::vector<v1::Violation>;

// Job files are small and flat; deeper nesting is a mistake or an attack.
constexpr int kMaxDepth = 16;
constexpr size_t kMaxFileBytes = 1 << 20;

void Add(Violations* violations, const std::string& field, const std::string& message) {
  v1::Violation violation;
  violation.set_field(field);
  violation.set_message(message);
  violations->push_back(violation);
}

// Levenshtein distance; names are short.
size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitution = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitution});
    }
  }
  return row[b.size()];
}

std::string UnknownField(const Descriptor* type, const std::string& name) {
  std::vector<std::string> known;
  for (int i = 0; i < type->field_count(); ++i) known.push_back(type->field(i)->name());
  const auto nearest = std::min_element(
      known.begin(), known.end(),
      [&](const auto& a, const auto& b) { return EditDistance(a, name) < EditDistance(b, name); });
  if (nearest != known.end() && EditDistance(*nearest, name) <= 1 + name.size() / 3) {
    return absl::StrCat("unknown field \"", name, "\"; did you mean \"", *nearest, "\"?");
  }
  return absl::StrCat("unknown field \"", name, "\"; the fields here are ",
                      absl::StrJoin(known, ", "));
}

std::string Describe(const YAML::Node& node) {
  if (node.IsMap()) return "a map";
  if (node.IsSequence()) return "a list";
  if (node.IsNull()) return "nothing";
  return absl::StrCat("\"", node.Scalar(), "\"");
}

// "!" is yaml-cpp's tag of a quoted scalar: "5" in quotes is text, never a number.
bool IsQuoted(const YAML::Node& node) { return node.Tag() == "!"; }

template <typename Integer>
bool ParseInteger(const YAML::Node& node, Integer* value) {
  if (IsQuoted(node)) return false;
  std::string text = node.Scalar();
  text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
  return absl::SimpleAtoi(text, value);
}

bool ParseDouble(const YAML::Node& node, double* value) {
  return !IsQuoted(node) && absl::SimpleAtod(node.Scalar(), value) && std::isfinite(*value);
}

bool ParseBool(const YAML::Node& node, bool* value) {
  if (IsQuoted(node)) return false;
  const std::string& text = node.Scalar();
  *value = text == "true";
  return text == "true" || text == "false";
}

class YamlReader {
 public:
  explicit YamlReader(Violations* violations) : violations_(violations) {}

  void ReadMessage(const YAML::Node& node, const std::string& path, int depth, Message* message) {
    if (!node.IsMap() || depth > kMaxDepth) {
      Add(violations_, path.empty() ? kWholeFile : path,
          absl::StrCat(Describe(node), " stands where a map of fields must"));
      return;
    }
    std::set<std::string> seen;
    for (const auto& entry : node) {
      const std::string name = entry.first.IsScalar() ? entry.first.Scalar() : "";
      const std::string field_path = path.empty() ? name : absl::StrCat(path, ".", name);
      const FieldDescriptor* field = message->GetDescriptor()->FindFieldByName(name);
      if (field == nullptr) {
        Add(violations_, field_path, UnknownField(message->GetDescriptor(), name));
      } else if (!seen.insert(name).second) {
        Add(violations_, field_path, "the field is given twice; keep one");
      } else {
        ReadField(entry.second, field_path, depth, field, message);
      }
    }
  }

 private:
  void ReadField(const YAML::Node& node, const std::string& path, int depth,
                 const FieldDescriptor* field, Message* message) {
    if (node.IsNull()) return;  // "key:" with nothing after it means the default
    if (!field->is_repeated()) {
      ReadValue(node, path, depth, field, message);
      return;
    }
    if (!node.IsSequence()) {
      Add(violations_, path,
          absl::StrCat(Describe(node), " stands where a list must; write [...]"));
      return;
    }
    for (size_t i = 0; i < node.size(); ++i) {
      ReadValue(node[i], absl::StrCat(path, "[", i, "]"), depth, field, message);
    }
  }

  void ReadValue(const YAML::Node& node, const std::string& path, int depth,
                 const FieldDescriptor* field, Message* message) {
    const auto* reflection = message->GetReflection();
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      ReadMessage(node, path, depth + 1,
                  field->is_repeated() ? reflection->AddMessage(message, field)
                                       : reflection->MutableMessage(message, field));
      return;
    }
    const char* wanted = node.IsScalar() ? SetScalar(node, field, message) : TypeName(field);
    if (wanted != nullptr) Add(violations_, path, absl::StrCat(Describe(node), " is not ", wanted));
  }

  static const char* TypeName(const FieldDescriptor* field) {
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return "a whole number of 32 bits";
      case FieldDescriptor::CPPTYPE_INT64:
        return "a whole number";
      case FieldDescriptor::CPPTYPE_UINT64:
        return "a whole number of 0 or more";
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return "a finite number";
      case FieldDescriptor::CPPTYPE_BOOL:
        return "true or false";
      default:
        return "text";
    }
  }

  // Null when set, otherwise what was wanted.
  static const char* SetScalar(const YAML::Node& node, const FieldDescriptor* field,
                               Message* message) {
    const auto* reflection = message->GetReflection();
    const auto set = [&](auto value, auto parse, auto add, auto assign) {
      if (!parse(node, &value)) return false;
      field->is_repeated() ? (reflection->*add)(message, field, value)
                           : (reflection->*assign)(message, field, value);
      return true;
    };
    using R = google::protobuf::Reflection;
    bool ok = false;
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        ok = set(int32_t{0}, ParseInteger<int32_t>, &R::AddInt32, &R::SetInt32);
        break;
      case FieldDescriptor::CPPTYPE_INT64:
        ok = set(int64_t{0}, ParseInteger<int64_t>, &R::AddInt64, &R::SetInt64);
        break;
      case FieldDescriptor::CPPTYPE_UINT64:
        ok = set(uint64_t{0}, ParseInteger<uint64_t>, &R::AddUInt64, &R::SetUInt64);
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        ok = set(0.0, ParseDouble, &R::AddDouble, &R::SetDouble);
        break;
      case FieldDescriptor::CPPTYPE_BOOL:
        ok = set(false, ParseBool, &R::AddBool, &R::SetBool);
        break;
      default:
        field->is_repeated() ? reflection->AddString(message, field, node.Scalar())
                             : reflection->SetString(message, field, node.Scalar());
        ok = true;
    }
    return ok ? nullptr : TypeName(field);
  }

  Violations* violations_;
};

// One step of "stages[0].data.files[1]": a name and perhaps an index.
struct PathPart {
  std::string name;
  int64_t index = -1;
};

bool ParsePath(absl::string_view path, std::vector<PathPart>* parts) {
  for (absl::string_view piece : absl::StrSplit(path, '.')) {
    PathPart part;
    const size_t bracket = piece.find('[');
    part.name = std::string(piece.substr(0, bracket));
    if (bracket != absl::string_view::npos) {
      absl::string_view index = piece.substr(bracket + 1);
      if (!absl::ConsumeSuffix(&index, "]") || !absl::SimpleAtoi(index, &part.index) ||
          part.index < 0) {
        return false;
      }
    }
    if (part.name.empty()) return false;
    parts->push_back(part);
  }
  return !parts->empty();
}

// Sets one override in the YAML tree; lists may grow by one element.
bool Assign(YAML::Node node, const std::vector<PathPart>& parts, const YAML::Node& value) {
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool last = i + 1 == parts.size();
    if (node.IsDefined() && !node.IsMap() && !node.IsNull()) return false;
    YAML::Node child = node[parts[i].name];
    if (parts[i].index >= 0) {
      if (!child.IsSequence() && child.IsDefined() && !child.IsNull()) return false;
      const size_t index = static_cast<size_t>(parts[i].index);
      if (index > child.size()) return false;
      if (index == child.size()) child.push_back(YAML::Node());
      child.reset(child[index]);
    }
    if (last) {
      child = value;
      return true;
    }
    node.reset(child);
  }
  return false;
}

// Where the first byte lies that no YAML file has; npos: nowhere.
size_t FindNotText(absl::string_view text) {
  return std::min(FindMalformedUtf8(text), text.find('\0'));
}

void ApplyOverride(const std::string& override_text, YAML::Node* root, Violations* violations) {
  const std::pair<std::string, std::string> split =
      absl::StrSplit(override_text, absl::MaxSplits('=', 1));
  std::vector<PathPart> parts;
  if (FindNotText(override_text) != std::string::npos) {
    Add(violations, "(override)", "it is not UTF-8; use a UTF-8 terminal");
    return;
  }
  if (!absl::StrContains(override_text, '=') || !ParsePath(split.first, &parts)) {
    Add(violations, override_text, "an override is written path=value, e.g. stages[0].steps=100");
    return;
  }
  try {
    if (!Assign(*root, parts, YAML::Load(split.second))) {
      Add(violations, split.first, "the path leads through a value or past the end of a list");
    }
  } catch (const YAML::Exception& error) {
    Add(violations, split.first, absl::StrCat("\"", split.second, "\" is not YAML: ", error.msg));
  }
}

}  // namespace

ParsedSpec ParseJobSpec(const std::string& text, const std::vector<std::string>& overrides) {
  ParsedSpec result;
  if (text.size() > kMaxFileBytes) {
    Add(&result.violations, kWholeFile,
        absl::StrCat("a job file of ", text.size(), " bytes is above the limit of ",
                     kMaxFileBytes));
    return result;
  }
  if (const size_t at = FindNotText(text); at != std::string::npos) {
    Add(&result.violations, kWholeFile,
        absl::StrCat("line ", std::count(text.begin(), text.begin() + at, '\n') + 1,
                     " is not UTF-8; save the file in this encoding"));
    return result;
  }
  try {
    YAML::Node root = YAML::Load(text);
    if (root.IsNull()) {
      Add(&result.violations, kWholeFile, "the job file is empty");
      return result;
    }
    if (root.IsMap()) {
      for (const std::string& one : overrides) ApplyOverride(one, &root, &result.violations);
    }
    YamlReader(&result.violations).ReadMessage(root, "", 0, &result.spec);
  } catch (const YAML::Exception& error) {
    Add(&result.violations, kWholeFile,
        error.mark.is_null() ? absl::StrCat("not YAML: ", error.msg)
                             : absl::StrCat("not YAML at line ", error.mark.line + 1, ", column ",
                                            error.mark.column + 1, ": ", error.msg));
  }
  return result;
}

}  // namespace octavo
