// Names of modules as RecipeSpec::keep_bf16 and the job spec's recipe.keep_bf16 describe them.
#pragma once

#include <fnmatch.h>

#include <string>

namespace octavo::engine {

// A pattern is a shell glob over the whole name, in which * also matches dots.
inline bool MatchesModule(const std::string& pattern, const std::string& module) {
  return fnmatch(pattern.c_str(), module.c_str(), 0) == 0;
}

}  // namespace octavo::engine
