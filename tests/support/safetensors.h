// Reads a well-formed safetensors file of a golden: an 8-byte little-endian header length, a JSON
// header, the tensors' bytes. For tests alone: a malformed file throws.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace octavo::testing_support {

struct Tensor {
  std::string dtype;           // "F32", "BF16", "U8", ...
  std::vector<int64_t> shape;  // outermost first
  std::string bytes;           // row-major, little-endian

  // The elements as T; the caller picks a T of the dtype's size.
  template <typename T>
  std::vector<T> As() const {
    if (bytes.size() % sizeof(T) != 0) throw std::runtime_error("tensor of another element size");
    std::vector<T> values(bytes.size() / sizeof(T));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  int64_t count() const {
    int64_t product = 1;
    for (const int64_t extent : shape) product *= extent;
    return product;
  }
};

class Safetensors {
 public:
  explicit Safetensors(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error("cannot open " + path);
    const std::string content((std::istreambuf_iterator<char>(file)),
                              std::istreambuf_iterator<char>());
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, content.data(), sizeof(header_bytes));
    const std::string data = content.substr(8 + header_bytes);
    const nlohmann::json header = nlohmann::json::parse(content.substr(8, header_bytes));
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__") {
        metadata_ = entry.get<std::map<std::string, std::string>>();
      } else {
        const std::vector<size_t> range = entry.at("data_offsets").get<std::vector<size_t>>();
        tensors_[name] = {entry.at("dtype").get<std::string>(),
                          entry.at("shape").get<std::vector<int64_t>>(),
                          data.substr(range.at(0), range.at(1) - range.at(0))};
      }
    }
  }

  // Throws std::out_of_range where the file has no such tensor.
  const Tensor& at(const std::string& name) const { return tensors_.at(name); }
  bool contains(const std::string& name) const { return tensors_.count(name) > 0; }
  const std::map<std::string, Tensor>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace octavo::testing_support
