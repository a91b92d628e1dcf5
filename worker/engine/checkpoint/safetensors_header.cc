#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/utf8.h"
#include "worker/engine/checkpoint/safetensors.h"

namespace octavo::engine {
namespace {

constexpr absl::string_view kMetadataKey = "__metadata__";

// Receives the header's JSON. A handler and not a parsed tree, because a tree keeps one of two
// equal keys without a word. Nothing nests deeper than a tensor's arrays, so hostile nesting ends
// at once.
class HeaderHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderHandler(SafetensorsHeader* header) : header_(header) {}

  const std::string& error() const { return error_; }

  bool null() override { return Scalar("null"); }
  bool boolean(bool) override { return Scalar("a boolean"); }
  bool number_integer(number_integer_t) override { return Scalar("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return Scalar("a number that is no 64-bit unsigned integer");
  }
  bool binary(binary_t&) override { return Scalar("binary"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (where_ != Where::kArray) return Scalar("a number");
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Fail(absl::StrCat(field_, field_ == "shape" ? " overflows: " : " is out of range: ",
                               value, " is not below 2^63"));
    }
    array_.push_back(static_cast<int64_t>(value));
    return true;
  }

  bool string(string_t& value) override {
    if (where_ == Where::kMetadata) {
      header_->metadata[field_] = value;
      return true;
    }
    if (where_ == Where::kTensor && field_ == "dtype") {
      if (ParseTensorType(value, &tensor_.type)) return true;
      return Fail(absl::StrCat("dtype \"", absl::Utf8SafeCEscape(value), "\" is unknown"));
    }
    return Scalar("a string");
  }

  bool start_object(std::size_t) override {
    switch (where_) {
      case Where::kStart:
        where_ = Where::kTop;
        return true;
      case Where::kTop:
        fields_.clear();
        where_ = name_ == kMetadataKey ? Where::kMetadata : Where::kTensor;
        tensor_ = {};
        tensor_.name = name_;
        return true;
      default:
        return Scalar("an object");
    }
  }

  bool end_object() override {
    if (where_ == Where::kTensor) {
      for (const char* field : {"dtype", "shape", "data_offsets"}) {
        if (fields_.count(field) == 0) return Fail(absl::StrCat("key \"", field, "\" is missing"));
      }
      header_->tensors.push_back(std::move(tensor_));
    }
    where_ = where_ == Where::kTop ? Where::kEnd : Where::kTop;
    return true;
  }

  bool start_array(std::size_t) override {
    if (where_ != Where::kTensor || field_ == "dtype") return Scalar("an array");
    where_ = Where::kArray;
    array_.clear();
    return true;
  }

  bool end_array() override {
    where_ = Where::kTensor;
    if (field_ == "shape") {
      tensor_.shape = std::move(array_);
      return true;
    }
    if (array_.size() != 2) {
      return Fail(absl::StrCat("data_offsets has ", array_.size(), " numbers instead of 2"));
    }
    tensor_.begin = array_[0];
    tensor_.end = array_[1];
    return true;
  }

  bool key(string_t& key) override {
    if (where_ == Where::kTop) {
      name_ = key;
      if (names_.insert(key).second) return true;
      return Fail("the key occurs twice");
    }
    field_ = key;
    if (!fields_.insert(key).second) {
      return Fail(absl::StrCat("key \"", absl::Utf8SafeCEscape(key), "\" occurs twice"));
    }
    if (where_ == Where::kMetadata || key == "dtype" || key == "shape" || key == "data_offsets") {
      return true;
    }
    return Fail(absl::StrCat("key \"", absl::Utf8SafeCEscape(key), "\" is unknown"));
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception&) override {
    return Fail(absl::StrCat("the header is not valid JSON at its byte ", position));
  }

 private:
  enum class Where { kStart, kTop, kMetadata, kTensor, kArray, kEnd };

  // A value that does not belong where it stands.
  bool Scalar(absl::string_view what) {
    switch (where_) {
      case Where::kArray:
        return Fail(absl::StrCat(field_, " contains ", what,
                                 " where a 64-bit unsigned integer is expected"));
      case Where::kMetadata:
        return Fail(absl::StrCat("value of \"", absl::Utf8SafeCEscape(field_), "\" is ", what,
                                 ", not a string"));
      case Where::kTensor:
        return Fail(
            absl::StrCat(field_, " is ", what,
                         field_ == "dtype" ? ", not the name of a type" : ", not an array"));
      default:
        return Fail(absl::StrCat("is ", what, ", not an object"));
    }
  }

  bool Fail(absl::string_view message) {
    error_ = names_.empty()
                 ? std::string(message)
                 : absl::StrCat("tensor \"", absl::Utf8SafeCEscape(name_), "\": ", message);
    return false;
  }

  SafetensorsHeader* const header_;
  Where where_ = Where::kStart;
  std::string name_;   // key of the top object
  std::string field_;  // key within it
  std::set<std::string> names_;
  std::set<std::string> fields_;
  TensorEntry tensor_;
  std::vector<int64_t> array_;
  std::string error_;
};

// Errors do not name the file yet.
absl::StatusOr<int64_t> HeaderLength(absl::string_view start, int64_t file_bytes) {
  if (file_bytes < 8) {
    return absl::InvalidArgumentError(
        absl::StrCat("the file has ", file_bytes, " bytes; a header length needs 8"));
  }
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) {
    length = length << 8 | static_cast<uint8_t>(start[static_cast<size_t>(i)]);
  }
  if (length > kMaxSafetensorsHeader) {
    return absl::InvalidArgumentError(absl::StrCat(
        "header length ", length, " is above the format's limit of ", kMaxSafetensorsHeader));
  }
  if (length > static_cast<uint64_t>(file_bytes - 8)) {
    return absl::InvalidArgumentError(absl::StrCat("header length ", length,
                                                   " reaches beyond the file's ", file_bytes,
                                                   " bytes; the file is cut off"));
  }
  return static_cast<int64_t>(length);
}

// The JSON text without its padding.
absl::StatusOr<absl::string_view> HeaderText(absl::string_view text) {
  if (text.empty()) return absl::InvalidArgumentError("header length is 0");
  if (text[0] != '{') return absl::InvalidArgumentError("the header does not start with {");
  if (FindMalformedUtf8(text) != text.npos) {
    return absl::InvalidArgumentError("the header is not valid UTF-8");
  }
  while (text.back() == ' ') text.remove_suffix(1);
  if (text.back() == '\n' || text.back() == '\r' || text.back() == '\t' || text.back() == '\0') {
    return absl::InvalidArgumentError("the header is padded with something other than spaces");
  }
  return text;
}

// Bytes of a tensor of this type and shape.
absl::StatusOr<int64_t> TensorBytes(const TensorEntry& tensor) {
  int64_t bits = TensorTypeBits(tensor.type);
  for (const int64_t dimension : tensor.shape) {
    if (__builtin_mul_overflow(bits, dimension, &bits)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the size of shape ", ShapeText(tensor.shape), " overflows 64 bits"));
    }
  }
  if (bits % 8 != 0) {
    return absl::InvalidArgumentError(absl::StrCat(TensorTypeName(tensor.type), " of shape ",
                                                   ShapeText(tensor.shape), " is ", bits,
                                                   " bits, which do not fill whole bytes"));
  }
  return bits / 8;
}

// `position`: where the tensors before it end.
absl::Status CheckTensor(const TensorEntry& tensor, int64_t position, int64_t data_bytes) {
  if (tensor.end < tensor.begin) {
    return absl::InvalidArgumentError(
        absl::StrCat("data_offsets [", tensor.begin, ", ", tensor.end, "] end before they begin"));
  }
  ASSIGN_OR_RETURN(const int64_t bytes, TensorBytes(tensor));
  if (bytes != tensor.end - tensor.begin) {
    return absl::InvalidArgumentError(
        absl::StrCat(TensorTypeName(tensor.type), " of shape ", ShapeText(tensor.shape), " takes ",
                     bytes, " bytes, data_offsets give ", tensor.end - tensor.begin));
  }
  if (tensor.begin > position) {
    return absl::InvalidArgumentError(
        absl::StrCat("starts at byte ", tensor.begin, " and leaves a hole after byte ", position));
  }
  if (tensor.begin < position) {
    return absl::InvalidArgumentError(absl::StrCat("starts at byte ", tensor.begin,
                                                   " and overlaps what ends at byte ", position));
  }
  if (tensor.end > data_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("ends at byte ", tensor.end, " of ", data_bytes,
                                                   " bytes of data; the file is cut off"));
  }
  return absl::OkStatus();
}

// Sorts and checks that the tensors cover the data exactly once.
absl::Status CheckTensors(int64_t data_bytes, std::vector<TensorEntry>* tensors) {
  // By end too: an empty tensor may share the begin of a full one.
  std::sort(tensors->begin(), tensors->end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  int64_t position = 0;
  for (const TensorEntry& tensor : *tensors) {
    RETURN_IF_ERROR(Annotate(CheckTensor(tensor, position, data_bytes),
                             absl::StrCat("tensor \"", absl::Utf8SafeCEscape(tensor.name), "\"")));
    position = tensor.end;
  }
  if (position != data_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(data_bytes - position, " bytes follow the last tensor"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int64_t> SafetensorsHeaderLength(absl::string_view start, int64_t file_bytes,
                                                const std::string& path) {
  const absl::StatusOr<int64_t> length = HeaderLength(start, file_bytes);
  return length.ok() ? length : Annotate(length.status(), path);
}

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view start,
                                                         int64_t file_bytes,
                                                         const std::string& path) {
  SafetensorsHeader header;
  ASSIGN_OR_RETURN(header.length, SafetensorsHeaderLength(start, file_bytes, path));
  const absl::StatusOr<absl::string_view> text =
      HeaderText(start.substr(8, static_cast<size_t>(header.length)));
  if (!text.ok()) return Annotate(text.status(), path);
  HeaderHandler handler(&header);
  if (!nlohmann::json::sax_parse(text->begin(), text->end(), &handler)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", handler.error()));
  }
  const int64_t data_bytes = file_bytes - header.data_start();
  RETURN_IF_ERROR(Annotate(CheckTensors(data_bytes, &header.tensors), path));
  return header;
}

}  // namespace octavo::engine
