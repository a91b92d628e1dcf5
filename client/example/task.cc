#include "client/example/task.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/file.h"
#include "base/split_mix.h"
#include "base/status.h"

namespace octavo {
namespace {

constexpr int64_t kNumbers = 1000;
constexpr int64_t kSums = kNumbers * kNumbers;

constexpr int kLetters = 26;
constexpr int kWordLetters = 7;
constexpr int64_t kWords = 8'031'810'176;  // kLetters ^ kWordLetters

constexpr int64_t kMostTrainDocuments = 10'000'000;
constexpr int64_t kMostHeldout = 100'000;

// Parameters: 320 x 128 embeddings, and in each of 2 layers q 128x256 + 256, k and v 128x128 + 128,
// o 256x128, three 128x384 projections and 2 x 128 norms; 128 for the last norm.
constexpr char kConfig[] = R"({
  "architectures": ["Qwen2ForCausalLM"],
  "model_type": "qwen2",
  "vocab_size": 320,
  "hidden_size": 128,
  "intermediate_size": 384,
  "num_hidden_layers": 2,
  "num_attention_heads": 4,
  "num_key_value_heads": 2,
  "head_dim": 64,
  "hidden_act": "silu",
  "max_position_embeddings": 512,
  "initializer_range": 0.1,
  "rms_norm_eps": 1e-06,
  "rope_theta": 10000.0,
  "tie_word_embeddings": true,
  "use_sliding_window": false,
  "attention_dropout": 0.0,
  "bos_token_id": null,
  "eos_token_id": 256,
  "torch_dtype": "bfloat16"
}
)";

// In [0, problems); the bias of the remainder is below 2^-30.
int64_t RandomProblem(int64_t problems, uint64_t* state) {
  return static_cast<int64_t>(NextSplitMix(state) % static_cast<uint64_t>(problems));
}

// The letters of word number `word`, each `places` on in the alphabet.
std::string Word(int64_t word, int places) {
  std::string letters;
  for (int i = 0; i < kWordLetters; ++i, word /= kLetters) {
    letters.push_back(static_cast<char>('a' + (word % kLetters + places) % kLetters));
  }
  return letters;
}

std::string WordPrompt(int64_t word) { return Word(word, 0) + "="; }
std::string WordAnswer(int64_t word) { return Word(word, kLetters / 2); }

std::string LowestDigitFirst(int64_t number, int digits) {
  std::string text = absl::StrFormat("%0*d", digits, number);
  std::reverse(text.begin(), text.end());
  return text;
}

// Problem number a * 1000 + b.
std::string SumPrompt(int64_t problem) {
  return absl::StrCat(LowestDigitFirst(problem / kNumbers, 3), "+",
                      LowestDigitFirst(problem % kNumbers, 3), "=");
}

std::string SumAnswer(int64_t problem) {
  return LowestDigitFirst(problem / kNumbers + problem % kNumbers, 4);
}

absl::Status CheckRange(absl::string_view name, int64_t value, int64_t most) {
  if (value >= 1 && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " is ", value, ", not in [1, ", most, "]"));
}

}  // namespace

const std::vector<Task>& Tasks() {
  static const auto& tasks = *new std::vector<Task>{
      {"cipher", "Seven letters, each moved 13 places on: learnt smoothly", kWords, WordPrompt,
       WordAnswer},
      {"arithmetic", "Adding two numbers of three digits: learnt in one late jump", kSums,
       SumPrompt, SumAnswer}};
  return tasks;
}

absl::Status WriteTask(const Task& task, const std::string& folder, const TaskOptions& options) {
  RETURN_IF_ERROR(CheckRange("train_documents", options.train_documents, kMostTrainDocuments));
  RETURN_IF_ERROR(CheckRange("heldout", options.heldout, kMostHeldout));
  RETURN_IF_ERROR(MakeFolders(folder));
  uint64_t random = options.seed;
  absl::flat_hash_set<int64_t> held_out;
  std::string rows;
  while (static_cast<int64_t>(held_out.size()) < options.heldout) {
    const int64_t problem = RandomProblem(task.problems, &random);
    if (!held_out.insert(problem).second) continue;
    absl::StrAppend(&rows, "{\"prompt\":\"", task.prompt(problem), "\",\"answer\":\"",
                    task.answer(problem), "\"}\n");
  }
  std::string documents;
  for (int64_t written = 0; written < options.train_documents;) {
    const int64_t problem = RandomProblem(task.problems, &random);
    if (held_out.contains(problem)) continue;
    absl::StrAppend(&documents, task.prompt(problem), task.answer(problem), "\n");
    ++written;
  }
  RETURN_IF_ERROR(WriteFileAtomically(folder + "/train.txt", documents));
  RETURN_IF_ERROR(WriteFileAtomically(folder + "/heldout.jsonl", rows));
  return WriteFileAtomically(folder + "/config.json", kConfig);
}

}  // namespace octavo
