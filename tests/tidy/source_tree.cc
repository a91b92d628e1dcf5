#include "tests/tidy/source_tree.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace octavo::tidy {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolders[] = {"base",   "proto", "kernels", "worker", "server",
                                    "client", "tests", "deploy",  "cmake",  ".ci"};
constexpr const char* kRootFiles[] = {"README.md", "CONTRIBUTING.md", "CMakeLists.txt"};

SourceFile ReadLines(const fs::path& root, const fs::path& path) {
  SourceFile file{fs::relative(path, root).string(), {}};
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) file.lines.push_back(line);
  return file;
}

bool Wanted(const fs::path& path, const std::vector<std::string>& extensions) {
  return std::any_of(extensions.begin(), extensions.end(), [&](const std::string& extension) {
    return absl::EndsWith(path.string(), extension);
  });
}

}  // namespace

std::vector<SourceFile> ReadTree(const std::vector<std::string>& extensions) {
  const fs::path root = OCTAVO_SOURCE_DIR;
  std::vector<SourceFile> files;
  for (const char* folder : kFolders) {
    if (!fs::exists(root / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      if (entry.is_regular_file() && Wanted(entry.path(), extensions)) {
        files.push_back(ReadLines(root, entry.path()));
      }
    }
  }
  for (const char* name : kRootFiles) {
    if (fs::exists(root / name) && Wanted(root / name, extensions)) {
      files.push_back(ReadLines(root, root / name));
    }
  }
  std::sort(files.begin(), files.end(),
            [](const auto& a, const auto& b) { return a.path < b.path; });
  return files;
}

std::string At(const SourceFile& file, size_t line, const std::string& what) {
  return absl::StrCat(file.path, ":", line + 1, ": ", what);
}

std::string CodeOf(const std::string& line) {
  std::string code;
  char quote = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    if (quote != 0) {
      if (line[i] == '\\') {
        ++i;
      } else if (line[i] == quote) {
        quote = 0;
        code += '"';
      }
    } else if (line[i] == '"') {
      quote = line[i];
      code += '"';
    } else if (line.compare(i, 2, "//") == 0) {
      break;
    } else {
      code += line[i];
    }
  }
  return code;
}

}  // namespace octavo::tidy
