// One function for each parser that reads what others wrote. Each takes any bytes, and aborts where
// the parser breaks a promise of its header. libFuzzer calls them (fuzzer.cc), and a test calls
// them with the corpora (replay_test.cc).
#pragma once

#include "absl/strings/string_view.h"

namespace octavo::fuzz {

void Safetensors(absl::string_view bytes);  // a weights file
void Tokenizer(absl::string_view bytes);    // tokenizer.json
void Config(absl::string_view bytes);       // config.json
void Row(absl::string_view bytes);          // a row of a .jsonl, against nlohmann's reader
void Documents(absl::string_view bytes);    // a kind of file (one byte), then the file
void Job(absl::string_view bytes);          // a job file

struct Target {
  const char* name;  // and folder below tests/fuzz/corpus
  void (*run)(absl::string_view bytes);
};
inline constexpr Target kTargets[] = {{"safetensors", Safetensors}, {"tokenizer", Tokenizer},
                                      {"config", Config},           {"row", Row},
                                      {"documents", Documents},     {"job", Job}};

}  // namespace octavo::fuzz
