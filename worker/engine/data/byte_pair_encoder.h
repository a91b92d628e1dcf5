// Byte-pair encoding of one piece: of all adjacent pairs the one of lowest rank is merged, the
// leftmost on ties, until no pair has a merge (Sennrich et al. 2016, arXiv:1508.07909).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace octavo::engine {

class BytePairEncoder {
 public:
  BytePairEncoder() { byte_ids_.fill(kNoId); }

  static constexpr int32_t kNoId = -1;
  void SetByte(uint8_t byte, int32_t id) { byte_ids_[byte] = id; }
  // Ranks are the order of the calls. A pair that comes twice keeps its later rank and id, as in a
  // table that is filled entry by entry.
  void AddMerge(int32_t left, int32_t right, int32_t merged);
  // A piece that is this token as a whole is not merged at all (`ignore_merges`).
  void AddWholePiece(std::string bytes, int32_t id) { whole_pieces_.emplace(std::move(bytes), id); }

  int missing_bytes() const;

  // Appends the ids of `piece`; returns the number of its bytes that have no symbol and are lost.
  // O(n log n).
  int64_t Encode(absl::string_view piece, std::vector<int32_t>* ids) const;

 private:
  struct Merge {
    int32_t rank;
    int32_t id;
  };
  const Merge* Find(int32_t left, int32_t right) const;
  void MergeShort(std::vector<int32_t>* symbols) const;
  void MergeLong(std::vector<int32_t>* symbols) const;

  std::array<int32_t, 256> byte_ids_;
  absl::flat_hash_map<uint64_t, Merge> merges_;
  int32_t ranks_ = 0;
  absl::flat_hash_map<std::string, int32_t> whole_pieces_;
};

}  // namespace octavo::engine
