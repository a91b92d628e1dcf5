// The checkout as the tidy tests read it.
#pragma once

#include <string>
#include <vector>

namespace octavo::tidy {

struct SourceFile {
  std::string path;  // from the repository root
  std::vector<std::string> lines;
};

// Files that git would track by place: everything below the source folders, without build output.
std::vector<SourceFile> ReadTree(const std::vector<std::string>& extensions);

// "path:line: what" for failures.
std::string At(const SourceFile& file, size_t line, const std::string& what);

// The line without its // comment and without the contents of string literals.
std::string CodeOf(const std::string& line);

}  // namespace octavo::tidy
