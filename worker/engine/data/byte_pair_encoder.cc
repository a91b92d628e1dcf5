#include "worker/engine/data/byte_pair_encoder.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <utility>

namespace octavo::engine {
namespace {

// Up to here a scan over all pairs after each merge is faster than a heap.
constexpr size_t kShortPiece = 48;
constexpr int32_t kNoRank = std::numeric_limits<int32_t>::max();

uint64_t PairKey(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

// A symbol of a long piece in a list that merges shrink.
struct Node {
  int32_t id;
  int32_t previous;
  int32_t next;
};

// Valid while nodes[left] and its next still make `pair`.
struct Candidate {
  int32_t rank;
  int32_t left;
  uint64_t pair;
  friend bool operator>(const Candidate& a, const Candidate& b) {
    return std::pair(a.rank, a.left) > std::pair(b.rank, b.left);
  }
};

}  // namespace

void BytePairEncoder::AddMerge(int32_t left, int32_t right, int32_t merged) {
  merges_.insert_or_assign(PairKey(left, right), Merge{ranks_++, merged});
}

int BytePairEncoder::missing_bytes() const {
  return static_cast<int>(std::count(byte_ids_.begin(), byte_ids_.end(), kNoId));
}

const BytePairEncoder::Merge* BytePairEncoder::Find(int32_t left, int32_t right) const {
  const auto found = merges_.find(PairKey(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

int64_t BytePairEncoder::Encode(absl::string_view piece, std::vector<int32_t>* ids) const {
  if (!whole_pieces_.empty()) {
    const auto whole = whole_pieces_.find(piece);
    if (whole != whole_pieces_.end()) {
      ids->push_back(whole->second);
      return 0;
    }
  }
  std::vector<int32_t> symbols;
  symbols.reserve(piece.size());
  for (const char c : piece) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(c)];
    if (id != kNoId) symbols.push_back(id);
  }
  const int64_t lost = static_cast<int64_t>(piece.size() - symbols.size());
  if (symbols.size() <= kShortPiece) {
    MergeShort(&symbols);
  } else {
    MergeLong(&symbols);
  }
  ids->insert(ids->end(), symbols.begin(), symbols.end());
  return lost;
}

void BytePairEncoder::MergeShort(std::vector<int32_t>* symbols) const {
  std::array<Merge, kShortPiece> pairs;
  size_t count = symbols->size();
  const auto look_up = [&](size_t i) {
    const Merge* const merge = Find((*symbols)[i], (*symbols)[i + 1]);
    pairs[i] = merge != nullptr ? *merge : Merge{kNoRank, 0};
  };
  for (size_t i = 0; i + 1 < count; ++i) look_up(i);
  while (count > 1) {
    const auto best = std::min_element(pairs.begin(), pairs.begin() + (count - 1),
                                       [](Merge a, Merge b) { return a.rank < b.rank; });
    if (best->rank == kNoRank) break;
    const size_t at = static_cast<size_t>(best - pairs.begin());
    (*symbols)[at] = best->id;
    symbols->erase(symbols->begin() + at + 1);
    std::copy(pairs.begin() + at + 1, pairs.begin() + (count - 1), pairs.begin() + at);
    --count;
    if (at > 0) look_up(at - 1);
    if (at + 1 < count) look_up(at);
  }
}

void BytePairEncoder::MergeLong(std::vector<int32_t>* symbols) const {
  const int32_t count = static_cast<int32_t>(symbols->size());
  std::vector<Node> nodes(symbols->size());
  std::vector<Candidate> first_candidates;
  const auto candidate_at = [&](int32_t left, auto&& add) {
    if (left < 0 || nodes[left].next == count) return;
    const int32_t a = nodes[left].id;
    const int32_t b = nodes[nodes[left].next].id;
    if (const Merge* const merge = Find(a, b)) add(Candidate{merge->rank, left, PairKey(a, b)});
  };
  for (int32_t i = 0; i < count; ++i) nodes[i] = {(*symbols)[i], i - 1, i + 1};
  for (int32_t i = 0; i < count; ++i) {
    candidate_at(i, [&](Candidate c) { first_candidates.push_back(c); });
  }
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> heap(
      std::greater<>(), std::move(first_candidates));
  while (!heap.empty()) {
    const Candidate best = heap.top();
    heap.pop();
    Node& left = nodes[best.left];
    if (left.id == kNoId || left.next == count) continue;
    Node& right = nodes[left.next];
    if (PairKey(left.id, right.id) != best.pair) continue;
    left.id = Find(left.id, right.id)->id;
    right.id = kNoId;
    left.next = right.next;
    if (left.next != count) nodes[left.next].previous = best.left;
    candidate_at(left.previous, [&](Candidate c) { heap.push(c); });
    candidate_at(best.left, [&](Candidate c) { heap.push(c); });
  }
  symbols->clear();
  for (int32_t i = 0; i < count; i = nodes[i].next) symbols->push_back(nodes[i].id);
}

}  // namespace octavo::engine
