#include "tests/bench/figure.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace octavo::bench {
namespace {

std::string& Command() {
  static std::string command;
  return command;
}

// The value of a key's first line in /proc/cpuinfo; empty where there is none.
std::string ProcessorFact(absl::string_view key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (colon != std::string::npos && absl::StartsWith(line, key)) return line.substr(colon + 2);
  }
  return "";
}

}  // namespace

void SetCommand(int argc, const char* const* argv) {
  Command() = absl::StrJoin(argv, argv + argc, " ");
  const size_t folders = Command().substr(0, Command().find(' ')).rfind('/');
  if (folders != std::string::npos) Command().erase(0, folders + 1);
}

std::string Processor() {
  const std::string flags = ProcessorFact("flags");
  const std::vector<absl::string_view> present = absl::StrSplit(flags, ' ');
  std::string best = "no AVX2";
  for (const char* const unit : {"avx2", "avx512bw", "avx512_bf16", "amx_bf16"}) {
    if (std::find(present.begin(), present.end(), unit) != present.end()) best = unit;
  }
  return absl::StrCat(ProcessorFact("model name"), ", ", std::thread::hardware_concurrency(),
                      " cores, ", best);
}

void Print(const Figure& figure) {
  nlohmann::ordered_json line = {{"name", figure.name},       {"value", figure.value},
                                 {"unit", figure.unit},       {"baseline", nullptr},
                                 {"baseline_value", nullptr}, {"ratio", nullptr},
                                 {"command", Command()},      {"cpu", Processor()}};
  if (figure.baseline) {
    line["baseline"] = figure.baseline->name;
    line["baseline_value"] = figure.baseline->value;
    line["ratio"] = figure.value / figure.baseline->value;
  }
  if (figure.interval) line["interval"] = {figure.interval->low, figure.interval->high};
  std::puts(line.dump().c_str());
  std::fflush(stdout);
}

}  // namespace octavo::bench
