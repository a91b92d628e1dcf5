#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/log.h"
#include "base/status.h"
#include "base/strict_json.h"
#include "worker/engine/data/byte_alphabet.h"
#include "worker/engine/data/byte_level_tokenizer.h"
#include "worker/engine/data/nfc.h"
#include "worker/engine/data/tokenizer.h"

namespace octavo::engine {
namespace {

using Json = nlohmann::json;

// Far above every published vocabulary; keeps a broken id from allocating the memory.
constexpr int64_t kMostTokens = int64_t{1} << 22;
// Of pre-tokenizers, each of which a text goes through; published files have up to four.
constexpr size_t kMostStages = 16;

absl::Status Unsupported(absl::string_view key, absl::string_view value,
                         absl::string_view supported) {
  return absl::InvalidArgumentError(absl::StrCat(
      "tokenizer.json: ", key, " is ", value, ", which is not supported; supported: ", supported));
}

// `object`[key] when it is there and not null, else null.
const Json& Member(const Json& object, const char* key) {
  static const Json null;
  const auto found = object.is_object() ? object.find(key) : object.end();
  return !object.is_object() || found == object.end() ? null : *found;
}

std::string TypeOf(const Json& object) {
  const Json& type = Member(object, "type");
  if (type.is_string()) return type.get<std::string>();
  return object.is_null() ? "null" : "without a type";
}

bool Flag(const Json& object, const char* key, bool otherwise) {
  const Json& value = Member(object, key);
  return value.is_boolean() ? value.get<bool>() : otherwise;
}

class Parser {
 public:
  absl::StatusOr<std::unique_ptr<Tokenizer>> Parse(absl::string_view text,
                                                   const EndOfDocument& end_of_document) {
    // Whatever walks the tree below may recurse: its depth is limited here.
    ASSIGN_OR_RETURN(const Json json, ParseStrictJson(text, "tokenizer.json"));
    RETURN_IF_ERROR(ReadNormalizer(Member(json, "normalizer")));
    RETURN_IF_ERROR(ReadPreTokenizer(Member(json, "pre_tokenizer")));
    RETURN_IF_ERROR(ReadDecoder(Member(json, "decoder")));
    RETURN_IF_ERROR(ReadModel(Member(json, "model")));
    RETURN_IF_ERROR(ReadAddedTokens(Member(json, "added_tokens")));
    RETURN_IF_ERROR(ReadPostProcessor(Member(json, "post_processor")));
    ASSIGN_OR_RETURN(parts_.end_of_document, IdOf(end_of_document));
    parts_.sha256 = Sha256Of(absl::StrCat(parts_.end_of_document, "\n", text));
    WarnOfMissingBytes();
    return std::make_unique<ByteLevelTokenizer>(std::move(parts_));
  }

 private:
  absl::Status ReadNormalizer(const Json& normalizer) {
    const std::string type = TypeOf(normalizer);
    if (type == "null") return absl::OkStatus();
    if (type == "Sequence") {
      for (const Json& each : Member(normalizer, "normalizers")) {
        RETURN_IF_ERROR(ReadNormalizer(each));
      }
      return absl::OkStatus();
    }
    if (type != "NFC") return Unsupported("normalizer", type, "NFC or null (byte-level BPE)");
    parts_.normalize_nfc = true;
    return absl::OkStatus();
  }

  absl::Status ReadPreTokenizer(const Json& pre_tokenizer) {
    if (!pre_tokenizer.is_null()) RETURN_IF_ERROR(AddStage(pre_tokenizer));
    if (has_byte_level_) return absl::OkStatus();
    return Unsupported("pre_tokenizer", absl::StrCat(TypeOf(pre_tokenizer), " without ByteLevel"),
                       "byte-level BPE");
  }

  absl::Status AddStage(const Json& stage) {
    const std::string type = TypeOf(stage);
    if (type == "Sequence") {
      for (const Json& each : Member(stage, "pretokenizers")) RETURN_IF_ERROR(AddStage(each));
      return absl::OkStatus();
    }
    if (parts_.stages.size() == kMostStages) {
      return Unsupported("pre_tokenizer", absl::StrCat("a sequence of more than ", kMostStages),
                         absl::StrCat("at most ", kMostStages, " one after the other"));
    }
    if (type == "Split") return AddSplit(stage);
    if (type == "Digits") {
      parts_.stages.push_back({false, MakeDigitSplitter(Flag(stage, "individual_digits", false))});
      return absl::OkStatus();
    }
    if (type != "ByteLevel") {
      return Unsupported("pre_tokenizer", type, "Split, Digits, ByteLevel and Sequence");
    }
    has_byte_level_ = true;
    PreTokenizerStage byte_level;
    byte_level.add_prefix_space = Flag(stage, "add_prefix_space", true);
    if (Flag(stage, "use_regex", true)) {
      ASSIGN_OR_RETURN(byte_level.splitter, MakeSplitter(kGpt2Pattern));
    }
    parts_.stages.push_back(std::move(byte_level));
    return absl::OkStatus();
  }

  absl::Status AddSplit(const Json& stage) {
    const Json& regex = Member(Member(stage, "pattern"), "Regex");
    if (!regex.is_string()) {
      return Unsupported("pre_tokenizer Split", "without pattern.Regex", "a regular expression");
    }
    const Json& behavior = Member(stage, "behavior");
    if (behavior != "Isolated" || Flag(stage, "invert", false)) {
      return Unsupported("pre_tokenizer Split",
                         absl::StrCat("behavior ", behavior.dump(), " or inverted"),
                         "behavior \"Isolated\", invert false");
    }
    PreTokenizerStage split;
    ASSIGN_OR_RETURN(split.splitter, MakeSplitter(regex.get_ref<const std::string&>()));
    parts_.stages.push_back(std::move(split));
    return absl::OkStatus();
  }

  static absl::Status ReadDecoder(const Json& decoder) {
    const std::string type = TypeOf(decoder);
    return type == "ByteLevel" ? absl::OkStatus() : Unsupported("decoder", type, "ByteLevel");
  }

  absl::Status ReadModel(const Json& model) {
    // Old files leave the type out.
    const std::string type = Member(model, "type").is_null() ? "BPE" : TypeOf(model);
    if (type != "BPE") return Unsupported("model.type", type, "BPE");
    for (const char* const affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      const Json& value = Member(model, affix);
      if (!value.is_null() && value != "") {
        return Unsupported(absl::StrCat("model.", affix), value.dump(), "none");
      }
    }
    const Json& dropout = Member(model, "dropout");
    if (!dropout.is_null() && dropout != 0) {
      return Unsupported("model.dropout", dropout.dump(),
                         "none: the ids must be the same each time");
    }
    if (Flag(model, "byte_fallback", false)) {
      return Unsupported("model.byte_fallback", "true", "byte-level BPE");
    }
    RETURN_IF_ERROR(ReadVocabulary(Member(model, "vocab"), Flag(model, "ignore_merges", false)));
    return ReadMerges(Member(model, "merges"));
  }

  absl::Status ReadVocabulary(const Json& vocabulary, bool ignore_merges) {
    if (!vocabulary.is_object() || vocabulary.empty()) {
      return absl::InvalidArgumentError("tokenizer.json: model.vocab is empty or no object");
    }
    ids_.reserve(vocabulary.size());
    vocabulary_entries_ = static_cast<int32_t>(vocabulary.size());
    std::string bytes;
    for (const auto& [token, id] : vocabulary.items()) {
      RETURN_IF_ERROR(AddToken(token, id));
      if (ignore_merges && BytesOfSymbols(token, &bytes)) {
        parts_.encoder.AddWholePiece(bytes, id.get<int32_t>());
      }
    }
    for (int byte = 0; byte < 256; ++byte) {
      const auto found = ids_.find(ByteSymbol(static_cast<uint8_t>(byte)));
      if (found != ids_.end()) parts_.encoder.SetByte(static_cast<uint8_t>(byte), found->second);
    }
    return absl::OkStatus();
  }

  // A token that is not written in byte symbols, as added ones may be, decodes to its own UTF-8.
  absl::Status AddToken(const std::string& token, const Json& id_value) {
    if (!id_value.is_number_integer() || id_value < 0 || id_value >= kMostTokens) {
      return absl::InvalidArgumentError(absl::StrCat("tokenizer.json: the id of \"", token,
                                                     "\" is ", id_value.dump(), ", not in [0, ",
                                                     kMostTokens, ")"));
    }
    const int32_t id = id_value.get<int32_t>();
    ids_.insert_or_assign(token, id);
    if (static_cast<size_t>(id) >= parts_.token_bytes.size()) parts_.token_bytes.resize(id + 1);
    std::string bytes;
    parts_.token_bytes[id] = BytesOfSymbols(token, &bytes) ? bytes : token;
    return absl::OkStatus();
  }

  absl::Status ReadMerges(const Json& merges) {
    if (!merges.is_array()) {
      return absl::InvalidArgumentError("tokenizer.json: model.merges is no list");
    }
    for (size_t i = 0; i < merges.size(); ++i) {
      const Json& merge = merges[i];
      absl::string_view left;
      absl::string_view right;
      if (merge.is_string()) {
        const absl::string_view line = merge.get_ref<const std::string&>();
        if (i == 0 && absl::StartsWith(line, "#version")) continue;
        const size_t space = line.find(' ');
        if (space == absl::string_view::npos || line.find(' ', space + 1) != line.npos) {
          return BadMerge(i, merge, "is not two parts with one space between");
        }
        left = line.substr(0, space);
        right = line.substr(space + 1);
      } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
                 merge[1].is_string()) {
        left = merge[0].get_ref<const std::string&>();
        right = merge[1].get_ref<const std::string&>();
      } else {
        return BadMerge(i, merge, "is neither a string nor a pair of strings");
      }
      RETURN_IF_ERROR(AddMerge(i, merge, left, right));
    }
    return absl::OkStatus();
  }

  absl::Status AddMerge(size_t index, const Json& merge, absl::string_view left,
                        absl::string_view right) {
    const auto left_id = ids_.find(left);
    const auto right_id = ids_.find(right);
    const auto merged_id = ids_.find(absl::StrCat(left, right));
    if (left_id == ids_.end() || right_id == ids_.end() || merged_id == ids_.end()) {
      return BadMerge(index, merge, "names a token that model.vocab does not have");
    }
    parts_.encoder.AddMerge(left_id->second, right_id->second, merged_id->second);
    return absl::OkStatus();
  }

  static absl::Status BadMerge(size_t index, const Json& merge, absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokenizer.json: model.merges[", index, "] ", merge.dump(), " ", what));
  }

  absl::Status ReadAddedTokens(const Json& tokens) {
    absl::flat_hash_set<std::string> seen;
    std::vector<std::string> renumbered;
    for (const Json& each : tokens) {
      const Json& content = Member(each, "content");
      if (!content.is_string() || content == "" ||
          !seen.insert(content.get<std::string>()).second) {
        return absl::InvalidArgumentError(
            absl::StrCat("tokenizer.json: added_tokens has ", each.dump(),
                         ", of which the content is missing, empty or there twice"));
      }
      AddedToken token;
      token.content = content.get<std::string>();
      token.id = AddedTokenId(token.content);
      if (Member(each, "id") != token.id) renumbered.push_back(token.content);
      token.normalized = Flag(each, "normalized", !Flag(each, "special", false));
      // The normalised form is what is looked for, and what the id decodes to.
      if (token.normalized && parts_.normalize_nfc) token.content = NormalizeNfc(token.content);
      RETURN_IF_ERROR(AddToken(token.content, token.id));
      last_added_id_ = std::max(last_added_id_, token.id);
      token.single_word = Flag(each, "single_word", false);
      token.left_strip = Flag(each, "lstrip", false);
      token.right_strip = Flag(each, "rstrip", false);
      parts_.added_tokens.push_back(std::move(token));
    }
    if (!renumbered.empty()) {
      LogWarning("tokenizer.json: ", renumbered.size(), " added tokens, the first \"",
                 renumbered[0],
                 "\", are not numbered as the reference implementation does; its ids are used");
    }
    return absl::OkStatus();
  }

  // The reference ignores the ids in the file: a token of the vocabulary keeps that one's id,
  // others are numbered from the vocabulary's size or the highest added id on. Models are trained
  // with these numbers.
  int32_t AddedTokenId(const std::string& content) const {
    const auto found = ids_.find(content);
    return found != ids_.end() ? found->second : std::max(last_added_id_ + 1, vocabulary_entries_);
  }

  // ByteLevel changes offsets only. A template says what stands before the text; what it puts
  // behind is left to end_of_document.
  absl::Status ReadPostProcessor(const Json& processor) {
    const std::string type = TypeOf(processor);
    if (type == "null" || type == "ByteLevel") return absl::OkStatus();
    if (type == "Sequence") {
      for (const Json& each : Member(processor, "processors")) {
        RETURN_IF_ERROR(ReadPostProcessor(each));
      }
      return absl::OkStatus();
    }
    if (type != "TemplateProcessing") {
      return Unsupported("post_processor", type, "ByteLevel, TemplateProcessing and Sequence");
    }
    for (const Json& part : Member(processor, "single")) {
      const Json& special = Member(part, "SpecialToken");
      if (special.is_null()) break;
      const Json& name = Member(special, "id");
      const std::string key = name.is_string() ? name.get<std::string>() : "";
      const Json& ids = Member(Member(Member(processor, "special_tokens"), key.c_str()), "ids");
      if (!ids.is_array() || ids.size() != 1 || !ids[0].is_number_integer() ||
          parts_.begin_of_document >= 0) {
        return Unsupported("post_processor TemplateProcessing", part.dump(),
                           "one token of one id before the text");
      }
      RETURN_IF_ERROR(CheckId("the token before a document", ids[0].get<int64_t>()));
      parts_.begin_of_document = ids[0].get<int32_t>();
    }
    return absl::OkStatus();
  }

  absl::StatusOr<int32_t> IdOf(const EndOfDocument& end) const {
    if (const int32_t* const id = std::get_if<int32_t>(&end)) {
      RETURN_IF_ERROR(CheckId("the end-of-document token", *id));
      return *id;
    }
    const auto found = ids_.find(std::get<std::string>(end));
    if (found != ids_.end()) return found->second;
    return absl::InvalidArgumentError(absl::StrCat("tokenizer.json has no token \"",
                                                   std::get<std::string>(end),
                                                   "\", which tokenizer_config.json names as "
                                                   "eos_token: give eos_token_id in config.json"));
  }

  absl::Status CheckId(absl::string_view what, int64_t id) const {
    if (id >= 0 && id < static_cast<int64_t>(parts_.token_bytes.size())) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        what, " has id ", id, ", beyond the tokenizer's ", parts_.token_bytes.size(), " ids"));
  }

  void WarnOfMissingBytes() const {
    const int missing = parts_.encoder.missing_bytes();
    if (missing == 0) return;
    LogWarning("tokenizer.json lacks ", missing,
               " of the 256 byte symbols: those bytes of a text are lost when it is encoded");
  }

  ByteLevelParts parts_;
  bool has_byte_level_ = false;
  int32_t vocabulary_entries_ = 0;
  int32_t last_added_id_ = -1;
  absl::flat_hash_map<std::string, int32_t> ids_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizerJson(absl::string_view json,
                                                             const EndOfDocument& end_of_document) {
  return Parser().Parse(json, end_of_document);
}

}  // namespace octavo::engine
