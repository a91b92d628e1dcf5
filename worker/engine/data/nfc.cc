#include "worker/engine/data/nfc.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>

#include <limits>

#include "base/status.h"
#include "base/utf8.h"

namespace octavo::engine {

std::string NormalizeNfc(absl::string_view text) {
  CHECK(text.size() <= std::numeric_limits<int32_t>::max());
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* const nfc = icu::Normalizer2::getNFCInstance(error);
  CHECK(U_SUCCESS(error));
  const icu::StringPiece piece(text.data(), static_cast<int32_t>(text.size()));
  if (nfc->isNormalizedUTF8(piece, error) || FindMalformedUtf8(text) != absl::string_view::npos) {
    return std::string(text);
  }
  std::string normalized;
  icu::StringByteSink<std::string> sink(&normalized);
  nfc->normalizeUTF8(0, piece, sink, nullptr, error);
  CHECK(U_SUCCESS(error));
  return normalized;
}

}  // namespace octavo::engine
