// Which release of Abseil includes which of its headers from another one changes: a file that gets
// absl::StrCat through a neighbour builds on one distribution and not on the next.
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/tidy/source_tree.h"

namespace octavo::tidy {
namespace {

struct Home {
  const char* symbols;
  const char* header;
};

constexpr Home kHomes[] = {
    {R"(absl::(StrCat|StrAppend)\()", "absl/strings/str_cat.h"},
    {R"(absl::StrFormat\()", "absl/strings/str_format.h"},
    {R"(absl::StrJoin\()", "absl/strings/str_join.h"},
    {R"(absl::(StrSplit|MaxSplits|SkipEmpty|ByChar)\()", "absl/strings/str_split.h"},
    {R"(absl::(StartsWith|EndsWith|StrContains|EqualsIgnoreCase)\()", "absl/strings/match.h"},
    {R"(absl::Simple(Atoi|Atod|Atof|Atob|HexAtoi)\()", "absl/strings/numbers.h"},
    {R"(absl::StrReplaceAll\()", "absl/strings/str_replace.h"},
    {R"(absl::(CEscape|CHexEscape|Utf8SafeCEscape|BytesToHexString)\()", "absl/strings/escaping.h"},
    {R"(absl::(ConsumePrefix|ConsumeSuffix|StripPrefix|StripSuffix)\()", "absl/strings/strip.h"},
    {R"(absl::(Strip\w*AsciiWhitespace|AsciiStrTo\w+|ascii_\w+)\()", "absl/strings/ascii.h"},
    {R"(absl::(Span<|MakeSpan\(|MakeConstSpan\())", "absl/types/span.h"},
};

std::set<std::string> IncludesOf(const SourceFile& file) {
  const std::regex include(R"re(^#include "([^"]+)")re");
  std::set<std::string> found;
  std::smatch match;
  for (const std::string& line : file.lines) {
    if (std::regex_search(line, match, include)) found.insert(match[1]);
  }
  return found;
}

TEST(Includes, NameTheHeadersOfAbseilThatAFileUses) {
  std::map<std::string, std::set<std::string>> includes;
  const std::vector<SourceFile> tree = ReadTree({".h", ".cc"});
  for (const SourceFile& file : tree) includes[file.path] = IncludesOf(file);
  for (const SourceFile& file : tree) {
    std::set<std::string> known = includes[file.path];
    // A header of the same name is part of the file.
    const std::string own = absl::StrCat(file.path.substr(0, file.path.rfind('.')), ".h");
    if (known.count(own) > 0) known.insert(includes[own].begin(), includes[own].end());
    for (const Home& home : kHomes) {
      if (known.count(home.header) > 0) continue;
      const std::regex symbols(home.symbols);
      for (size_t i = 0; i < file.lines.size(); ++i) {
        if (!std::regex_search(CodeOf(file.lines[i]), symbols)) continue;
        ADD_FAILURE() << At(file, i, absl::StrCat("include ", home.header));
        break;
      }
    }
  }
}

}  // namespace
}  // namespace octavo::tidy
