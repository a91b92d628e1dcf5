#include "server/rpc/page_token.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"

namespace octavo::rpc {
namespace {

constexpr size_t kSealLength = 16;  // hexadecimal digits

// Guards against mistakes, not against forgery: a forged position reads nothing that a plain
// listing would not show.
std::string Seal(absl::string_view position, absl::string_view filter) {
  return Sha256Of(absl::StrCat("1 ", filter, " ", position)).substr(0, kSealLength);
}

}  // namespace

std::string MakePageToken(absl::string_view position, absl::string_view filter) {
  return absl::WebSafeBase64Escape(absl::StrCat(Seal(position, filter), position));
}

absl::StatusOr<std::string> ReadPageToken(const std::string& token, absl::string_view filter) {
  if (token.empty()) return std::string();
  std::string content;
  if (absl::WebSafeBase64Unescape(token, &content) && content.size() > kSealLength) {
    std::string position = content.substr(kSealLength);
    if (content.substr(0, kSealLength) == Seal(position, filter)) return position;
  }
  return absl::InvalidArgumentError(
      "page_token: it is not a next_page_token of a request with the same filter; leave it empty "
      "to begin anew");
}

}  // namespace octavo::rpc
