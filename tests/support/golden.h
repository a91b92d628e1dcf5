// Where golden files lie: the folder in OCTAVO_GOLDEN, or the large set beside the source tree
// where it is, or the small set in the tree.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "gtest/gtest.h"

namespace octavo::testing_support {

inline std::string GoldenFolder(const std::string& part) {
  const std::string tree = OCTAVO_SOURCE_DIR;
  std::string root = tree + "/tests/golden/data";
  if (std::filesystem::exists(tree + "/../shared/golden")) root = tree + "/../shared/golden";
  if (const char* const chosen = std::getenv("OCTAVO_GOLDEN")) root = chosen;
  return root + "/" + part;
}

}  // namespace octavo::testing_support

// Skips the running test where the golden folder `part` is absent.
#define OCTAVO_SKIP_WITHOUT_GOLDEN(part)                                       \
  if (!std::filesystem::exists(::octavo::testing_support::GoldenFolder(part))) \
  GTEST_SKIP() << "skipped: no golden folder at " << ::octavo::testing_support::GoldenFolder(part)
