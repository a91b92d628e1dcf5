#include "worker/engine/evaluate/exact_match.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/file.h"
#include "base/status.h"
#include "base/strict_json.h"

namespace octavo::engine {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{1} << 28;
constexpr absl::string_view kByteOrderMark = "\xEF\xBB\xBF";

std::vector<int32_t> EncodePrompt(const std::string& prompt, const Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  if (tokenizer.begin_of_document() >= 0) ids.push_back(tokenizer.begin_of_document());
  tokenizer.Encode(prompt, {}, &ids);
  return ids;
}

absl::Status AddRow(absl::string_view line, const EvaluationSpec& spec, const Tokenizer& tokenizer,
                    int64_t most_tokens, ExactMatchSet* set) {
  ASSIGN_OR_RETURN(const nlohmann::json row, ParseStrictJson(line, "the row"));
  for (const char* key : {"prompt", "answer"}) {
    if (!row.contains(key) || !row[key].is_string()) {
      return absl::InvalidArgumentError(
          absl::StrCat("key \"", key, "\" is missing or not a string"));
    }
  }
  std::vector<int32_t> prompt = EncodePrompt(row["prompt"].get<std::string>(), tokenizer);
  if (prompt.empty()) return absl::InvalidArgumentError("the prompt is empty");
  const auto tokens = static_cast<int64_t>(prompt.size());
  if (tokens + spec.exact_match_max_new_tokens > most_tokens) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the prompt has ", tokens, " tokens and exact_match_max_new_tokens is ",
        spec.exact_match_max_new_tokens, "; together at most ", most_tokens,
        " fit, the smaller of micro_batch * sequence_length and max_position_embeddings"));
  }
  set->prompts.push_back(std::move(prompt));
  set->answers.push_back(row["answer"].get<std::string>());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ExactMatchSet> ReadExactMatch(const EvaluationSpec& spec, const Tokenizer& tokenizer,
                                             int64_t most_tokens) {
  const std::string& path = spec.exact_match_file;
  ASSIGN_OR_RETURN(const std::string content, ReadFile(path, kMaxFileBytes));
  ExactMatchSet set;
  int64_t line_number = 0;
  for (absl::string_view line : absl::StrSplit(absl::StripPrefix(content, kByteOrderMark), '\n')) {
    ++line_number;
    if (static_cast<int64_t>(set.prompts.size()) >= spec.exact_match_limit) break;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty()) continue;
    RETURN_IF_ERROR(Annotate(AddRow(line, spec, tokenizer, most_tokens, &set),
                             absl::StrCat(path, ", line ", line_number)));
  }
  if (set.prompts.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": no rows; write one {\"prompt\": text, \"answer\": text} per line"));
  }
  return set;
}

absl::StatusOr<ExactMatchReport> EvaluateExactMatch(const ExactMatchSet& set,
                                                    const GenerationOptions& options,
                                                    const Tokenizer& tokenizer,
                                                    Transformer* transformer) {
  ASSIGN_OR_RETURN(const auto continuations, GenerateGreedily(set.prompts, options, transformer));
  ExactMatchReport report{.total = static_cast<int64_t>(set.answers.size())};
  for (size_t i = 0; i < continuations.size(); ++i) {
    report.correct += tokenizer.Decode(continuations[i]) == set.answers[i] ? 1 : 0;
  }
  return report;
}

}  // namespace octavo::engine
