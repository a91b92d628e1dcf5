// House rules that a compiler does not know, read off the source tree.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <regex>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "proto/support/metric_table.h"
#include "tests/tidy/source_tree.h"

namespace octavo::tidy {
namespace {

const std::vector<std::string> kCode = {".h", ".cc", ".cu", ".cuh"};

bool IsTidySource(const SourceFile& file) { return absl::StartsWith(file.path, "tests/tidy/"); }

TEST(Tidy, TheTreeIsFound) {
  EXPECT_GT(ReadTree(kCode).size(), 50u) << "the tests below would prove nothing";
}

TEST(Tidy, LinesAreAtMost100ColumnsAndEndClean) {
  for (const SourceFile& file : ReadTree(kCode)) {
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const std::string& line = file.lines[i];
      // UTF-8 continuation bytes take no column.
      const auto columns =
          std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; });
      if (columns > 100) ADD_FAILURE() << At(file, i, absl::StrCat(columns, " columns"));
      if (!line.empty() && (line.back() == ' ' || line.back() == '\t')) {
        ADD_FAILURE() << At(file, i, "trailing blank");
      }
      if (absl::StrContains(line, '\t')) ADD_FAILURE() << At(file, i, "tab");
    }
  }
}

// Another release of clang-format breaks some lines elsewhere.
TEST(Tidy, SourcesAreFormatted) {
  if (std::system("clang-format --version 2>/dev/null | grep -q 'version 14\\.'") != 0) {
    GTEST_SKIP() << "skipped: no clang-format 14 on the PATH";
  }
  std::string files;
  for (const SourceFile& file : ReadTree(kCode)) absl::StrAppend(&files, " ", file.path);
  const std::string command =
      absl::StrCat("cd '", OCTAVO_SOURCE_DIR, "' && clang-format --dry-run -Werror", files);
  EXPECT_EQ(std::system(command.c_str()), 0);
}

TEST(Tidy, FilesStayBelow600Lines) {
  for (const SourceFile& file : ReadTree(kCode)) {
    EXPECT_LE(file.lines.size(), 600u) << file.path << ": split it by thought";
  }
}

// A function body: from a line at column 0 (or two deeper, in a class) that ends in '{' and holds a
// parameter list, to the closing brace at the same indentation.
TEST(Tidy, FunctionsStayBelow71Lines) {
  const std::regex opening(R"(^( {0,2})[A-Za-z_~].*\).*\{$)");
  const std::regex no_function(
      R"(^\s*(namespace|class|struct|enum|union|extern|TEST|if|for|while|switch)\b)");
  for (const SourceFile& file : ReadTree(kCode)) {
    for (size_t i = 0; i < file.lines.size(); ++i) {
      std::smatch match;
      if (!std::regex_match(file.lines[i], match, opening)) continue;
      if (std::regex_search(file.lines[i], no_function)) continue;
      const std::string closing = match[1].str() + "}";
      size_t end = i + 1;
      while (end < file.lines.size() && !absl::StartsWith(file.lines[end], closing)) ++end;
      EXPECT_LE(end - i + 1, 70u) << At(file, i, "a function this long hides a second thought");
    }
  }
}

// What each folder may include of ours, beside itself. The build enforces link order; this holds
// for headers too.
TEST(Tidy, DependenciesPointOneWay) {
  const std::map<std::string, std::vector<std::string>> allowed = {
      {"base", {}},
      {"proto", {"base"}},
      {"kernels", {"base"}},
      {"worker/engine", {"kernels", "base"}},
      {"worker/trainer", {"worker/engine", "kernels/backend.h", "proto", "base"}},
      {"worker/agent", {"proto", "base"}},
      {"server/scheduling", {"base"}},
      {"server/core", {"server/scheduling", "base", "proto"}},
      {"server/storage", {"server/core", "base", "proto"}},
      {"server/telemetry", {"server/core", "server/storage", "proto", "base"}},
      {"server/loop",
       {"server/core", "server/storage/store.h", "server/telemetry", "proto", "base"}},
      {"server/rpc",
       {"server", "worker/engine/model/shape.h", "worker/engine/model/config.h",
        "worker/engine/precision/policy.h", "worker/trainer/recipe_spec.h", "proto", "base"}},
      {"client", {"proto", "base"}},
  };
  const std::regex include(
      R"re(^#include "((base|proto|kernels|worker|server|client|tests|octavo)/[^"]+)")re");
  for (const SourceFile& file : ReadTree(kCode)) {
    const auto rule = std::find_if(allowed.begin(), allowed.end(), [&](const auto& entry) {
      return absl::StartsWith(file.path, entry.first + "/");
    });
    if (rule == allowed.end()) continue;
    for (size_t i = 0; i < file.lines.size(); ++i) {
      std::smatch match;
      if (!std::regex_search(file.lines[i], match, include)) continue;
      const std::string target = match[1];
      const bool generated = absl::StartsWith(target, "octavo/v1/");
      if (generated && rule->first == "proto") continue;
      const bool ok =
          absl::StartsWith(target, rule->first + "/") ||
          std::any_of(rule->second.begin(), rule->second.end(), [&](const std::string& prefix) {
            return absl::StartsWith(target, prefix) || (generated && prefix == "proto");
          });
      EXPECT_TRUE(ok) << At(file, i, absl::StrCat(rule->first, " may not include ", target));
    }
  }
}

TEST(Tidy, GrpcIsKnownOnlyToRpcCode) {
  const std::vector<std::string> rpc = {"server/rpc/",     "server/main.cc", "worker/agent/",
                                        "worker/trainer/", "client/",        "tests/",
                                        "proto/"};
  const std::regex include(R"re(^#include [<"](grpcpp/|octavo/v1/.*\.grpc\.pb\.h))re");
  for (const SourceFile& file : ReadTree(kCode)) {
    if (std::any_of(rpc.begin(), rpc.end(),
                    [&](const auto& p) { return absl::StartsWith(file.path, p); }))
      continue;
    for (size_t i = 0; i < file.lines.size(); ++i) {
      EXPECT_FALSE(std::regex_search(file.lines[i], include))
          << At(file, i, "gRPC outside rpc code");
    }
  }
}

// The core must give equal effects for equal events: it may not look at the world.
TEST(Tidy, TheCoreIsPure) {
  const std::regex world(
      R"re(absl::Now\(|Clock|<thread>|<mutex>|<random>|<fstream>|sqlite3|time\(nullptr)re");
  for (const SourceFile& file : ReadTree(kCode)) {
    if (!absl::StartsWith(file.path, "server/core/") &&
        !absl::StartsWith(file.path, "server/scheduling/"))
      continue;
    for (size_t i = 0; i < file.lines.size(); ++i) {
      EXPECT_FALSE(std::regex_search(CodeOf(file.lines[i]), world)) << At(file, i, file.lines[i]);
    }
  }
}

TEST(Tidy, BannedCallsHaveAReplacement) {
  struct Ban {
    const char* pattern;
    const char* instead;
    std::vector<const char*> except;
  };
  const std::vector<Ban> bans = {
      {R"(\bstd::random_device\b|\bstd::rand\b|\bsrand\()",
       "a seeded generator, or RandomHex of base/file.h",
       {}},
      {R"(\bstd::shuffle\b|std::(normal|uniform_\w+)_distribution)",
       "our own generator: the standard's results differ between libraries",
       {}},
      {R"(\bstrcpy\(|\bsprintf\(|\bstrcat\()", "absl::StrCat or absl::StrFormat", {}},
      {R"(\bstd::cout\b)",
       "the stream that the caller passes in",
       {"client/", "main.cc", "tests/"}},
      {R"(\bstd::exit\(|(^|[^\w.>:])exit\()",
       "a Status to main",
       {"main.cc", "tests/", "worker/agent/", "client/"}},
      {R"(\bsystem\()", "posix_spawn or fork and exec with an argument list", {"tests/"}},
      {R"(<<<)", "Launch of kernels/cuda/launch.h", {"kernels/cuda/launch.h"}},
  };
  for (const SourceFile& file : ReadTree(kCode)) {
    if (IsTidySource(file)) continue;
    for (const Ban& ban : bans) {
      if (std::any_of(ban.except.begin(), ban.except.end(),
                      [&](const char* part) { return absl::StrContains(file.path, part); })) {
        continue;
      }
      const std::regex pattern(ban.pattern);
      for (size_t i = 0; i < file.lines.size(); ++i) {
        EXPECT_FALSE(std::regex_search(CodeOf(file.lines[i]), pattern))
            << At(file, i, absl::StrCat("use ", ban.instead));
      }
    }
  }
}

TEST(Tidy, NothingIsLeftForLater) {
  const std::regex marker(R"(\b(TODO|FIXME|XXX|HACK)\b)");
  for (const SourceFile& file :
       ReadTree({".h", ".cc", ".cu", ".cuh", ".proto", ".sh", ".md", ".yaml", ".cmake"})) {
    if (IsTidySource(file)) continue;
    for (size_t i = 0; i < file.lines.size(); ++i) {
      EXPECT_FALSE(std::regex_search(file.lines[i], marker))
          << At(file, i, "do it or file an issue");
    }
  }
}

// Those that Highway includes once for each target end in _inl.h and turn a guard of their own.
TEST(Tidy, HeadersAreGuardedByPragmaOnce) {
  for (const SourceFile& file : ReadTree({".h", ".cuh"})) {
    const auto guarded =
        std::find_if(file.lines.begin(), file.lines.end(), [&file](const std::string& line) {
          return absl::EndsWith(file.path, "_inl.h")
                     ? absl::EndsWith(line, "defined(HWY_TARGET_TOGGLE)")
                     : line == "#pragma once";
        });
    EXPECT_TRUE(guarded != file.lines.end()) << file.path;
  }
}

TEST(Tidy, LinksInDocumentsLeadSomewhere) {
  const std::regex link(R"(\]\(([^)#:]+)(#[^)]*)?\))");
  for (const SourceFile& file : ReadTree({".md"})) {
    const auto folder =
        std::filesystem::path(OCTAVO_SOURCE_DIR) / std::filesystem::path(file.path).parent_path();
    for (size_t i = 0; i < file.lines.size(); ++i) {
      for (std::sregex_iterator match(file.lines[i].begin(), file.lines[i].end(), link), end;
           match != end; ++match) {
        EXPECT_TRUE(std::filesystem::exists(folder / (*match)[1].str()))
            << At(file, i, absl::StrCat("no such file: ", (*match)[1].str()));
      }
    }
  }
}

// The documented metrics are exactly the rows of the table.
TEST(Tidy, EveryMetricIsDocumented) {
  std::set<std::string> documented;
  const std::regex row(R"(^\| `([a-z0-9_]+/[a-z0-9_]+)` )");
  for (const SourceFile& file : ReadTree({"server/README.md"})) {
    for (const std::string& line : file.lines) {
      std::smatch match;
      if (std::regex_search(line, match, row)) documented.insert(match[1]);
    }
  }
  std::set<std::string> rows;
  for (const MetricRow& metric : MetricTable()) rows.insert(std::string(metric.name));
  EXPECT_EQ(documented, rows) << "server/README.md holds the table of metrics";
}

TEST(Tidy, EveryProtoFileAndCallIsExplained) {
  const std::regex call(R"(^\s*rpc \w+)");
  const std::regex comment(R"(^\s*// )");
  for (const SourceFile& file : ReadTree({".proto"})) {
    EXPECT_TRUE(std::regex_search(file.lines.at(0), comment))
        << file.path << " does not say what it is";
    for (size_t i = 1; i < file.lines.size(); ++i) {
      if (!std::regex_search(file.lines[i], call)) continue;
      EXPECT_TRUE(std::regex_search(file.lines[i - 1], comment))
          << At(file, i, "a call without a word about it");
    }
  }
}

TEST(CodeOf, LeavesOutCommentsAndStrings) {
  EXPECT_EQ(CodeOf("a(\"exit(1)\");  // exit(2)"), "a(\"\");  ");
  EXPECT_EQ(CodeOf("x = \"a\\\"b\" + y"), "x = \"\" + y");
}

}  // namespace
}  // namespace octavo::tidy
