// The fuzzers' corpora, and what is left of each file when it is cut or has bytes changed, without
// a fuzzer. A finding of the fuzzer becomes a file of the corpus, and so a test.
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/split_mix.h"
#include "gtest/gtest.h"
#include "tests/fuzz/targets.h"

namespace octavo::fuzz {
namespace {

class Replay : public ::testing::TestWithParam<Target> {
 protected:
  // In the order of their names.
  static std::vector<std::string> Corpus() {
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::directory_iterator(
             std::string(OCTAVO_SOURCE_DIR) + "/tests/fuzz/corpus/" + GetParam().name)) {
      paths.push_back(entry.path().string());
    }
    std::sort(paths.begin(), paths.end());
    std::vector<std::string> files;
    for (const std::string& path : paths) {
      files.push_back(*ReadFile(path, int64_t{1} << 20));
    }
    return files;
  }
};

TEST_P(Replay, KeepsThePromisesOfItsParser) {
  const std::vector<std::string> corpus = Corpus();
  EXPECT_GE(corpus.size(), 3u);
  for (const std::string& file : corpus) GetParam().run(file);
}

TEST_P(Replay, KeepsThemForFilesThatAreCutOrChanged) {
  constexpr size_t kCuts = 40;
  constexpr int kChanges = 60;
  uint64_t random = 1;
  for (const std::string& file : Corpus()) {
    for (size_t i = 0; i < kCuts; ++i) GetParam().run(file.substr(0, file.size() * i / kCuts));
    for (int i = 0; i < kChanges && !file.empty(); ++i) {
      std::string changed = file;
      for (int j = 0; j <= i % 3; ++j) {
        changed[NextSplitMix(&random) % file.size()] = static_cast<char>(NextSplitMix(&random));
      }
      GetParam().run(changed);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Fuzz, Replay, ::testing::ValuesIn(kTargets),
                         [](const auto& target) { return std::string(target.param.name); });

}  // namespace
}  // namespace octavo::fuzz
