#include <oniguruma.h>

#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/utf8.h"
#include "worker/engine/data/split_pattern.h"

namespace octavo::engine {
namespace {

const OnigUChar* Bytes(const char* text) { return reinterpret_cast<const OnigUChar*>(text); }

struct FreeRegex {
  void operator()(OnigRegex regex) const { onig_free(regex); }
};
struct FreeRegion {
  void operator()(OnigRegion* region) const { onig_region_free(region, 1); }
};

class RegexSplitter final : public Splitter {
 public:
  explicit RegexSplitter(OnigRegex regex) : regex_(regex) {}

  // A match of no characters cuts nothing.
  size_t PieceEnd(absl::string_view text, size_t begin) const override {
    const std::unique_ptr<OnigRegion, FreeRegion> region(onig_region_new());
    const OnigUChar* const first = Bytes(text.data());
    const OnigUChar* const end = first + text.size();
    for (size_t from = begin; from < text.size();) {
      const int found =
          onig_search(regex_.get(), first, end, first + from, end, region.get(), ONIG_OPTION_NONE);
      if (found == ONIG_MISMATCH) break;
      CHECK(found >= 0);
      const size_t match_begin = static_cast<size_t>(region->beg[0]);
      const size_t match_end = static_cast<size_t>(region->end[0]);
      if (match_begin > begin && match_end > match_begin) return match_begin;
      if (match_end > begin) return match_end;
      if (match_begin >= text.size()) break;
      from = match_begin + DecodeUtf8(text, match_begin).length;
    }
    return text.size();
  }

 private:
  std::unique_ptr<re_pattern_buffer, FreeRegex> regex_;
};

// No limit on retries: it would end the search inside a long run of spaces, with a wrong piece. (0
// means none for a search, but for a match it is a limit of 0.)
void InitialiseOnce() {
  static const bool initialised = [] {
    OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
    CHECK(onig_initialize(encodings, 1) == ONIG_NORMAL);
    CHECK(onig_set_retry_limit_in_match(std::numeric_limits<unsigned long>::max()) == ONIG_NORMAL);
    CHECK(onig_set_retry_limit_in_search(0) == ONIG_NORMAL);
    return true;
  }();
  static_cast<void>(initialised);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Splitter>> MakeRegexSplitter(absl::string_view pattern) {
  InitialiseOnce();
  OnigRegex regex = nullptr;
  OnigErrorInfo info;
  const OnigUChar* const first = Bytes(pattern.data());
  const int result = onig_new(&regex, first, first + pattern.size(), ONIG_OPTION_CAPTURE_GROUP,
                              ONIG_ENCODING_UTF8, ONIG_SYNTAX_RUBY, &info);
  if (result != ONIG_NORMAL) {
    OnigUChar message[ONIG_MAX_ERROR_MESSAGE_LEN];
    const int length = onig_error_code_to_str(message, result, &info);
    return absl::InvalidArgumentError(
        absl::StrCat("the split pattern \"", pattern, "\" is no regular expression of Oniguruma: ",
                     absl::string_view(reinterpret_cast<const char*>(message), length)));
  }
  return std::make_unique<RegexSplitter>(regex);
}

}  // namespace octavo::engine
