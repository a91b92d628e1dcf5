// Where golden files lie: the folder in OCTAVO_GOLDEN, or golden beside the source tree.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "gtest/gtest.h"

namespace octavo::testing_support {

inline std::string GoldenFolder(const std::string& part) {
  const char* const root = std::getenv("OCTAVO_GOLDEN");
  return (root != nullptr ? std::string(root)
                          : std::string(OCTAVO_SOURCE_DIR) + "/../shared/golden") +
         "/" + part;
}

}  // namespace octavo::testing_support

// Skips the running test where the golden folder `part` is absent.
#define OCTAVO_SKIP_WITHOUT_GOLDEN(part)                                       \
  if (!std::filesystem::exists(::octavo::testing_support::GoldenFolder(part))) \
  GTEST_SKIP() << "skipped: no golden folder at " << ::octavo::testing_support::GoldenFolder(part)
