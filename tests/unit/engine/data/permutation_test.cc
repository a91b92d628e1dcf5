#include "worker/engine/data/permutation.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace octavo::engine {
namespace {

std::vector<int64_t> Order(int64_t size, uint64_t seed, int64_t epoch) {
  const Permutation permutation(size, seed, epoch);
  std::vector<int64_t> order;
  for (int64_t i = 0; i < size; ++i) order.push_back(permutation[i]);
  return order;
}

TEST(Permutation, HoldsEveryIndexOnceForAnySize) {
  for (const int64_t size : {1, 2, 3, 4, 5, 7, 16, 17, 64, 65, 1000, 4097}) {
    std::vector<int64_t> order = Order(size, 42, 3);
    std::sort(order.begin(), order.end());
    std::vector<int64_t> all(size);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(order, all) << size;
  }
}

TEST(Permutation, IsThePureFunctionThatCheckpointsRelyOn) {
  // Written down from the first version: another value would resume runs in another order.
  EXPECT_EQ(Order(8, 1, 0), (std::vector<int64_t>{5, 2, 6, 4, 0, 3, 1, 7}));
  EXPECT_EQ(Order(8, 1, 1), (std::vector<int64_t>{3, 0, 4, 5, 7, 2, 6, 1}));
}

TEST(Permutation, EpochsAndSeedsReachManyOrders) {
  std::set<std::vector<int64_t>> orders;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    for (int64_t epoch = 0; epoch < 40; ++epoch) orders.insert(Order(4, seed, epoch));
  }
  EXPECT_EQ(orders.size(), 24u) << "all 4! orders of four rows";
}

TEST(Permutation, NeighboursAreSpread) {
  const std::vector<int64_t> order = Order(1000, 9, 0);
  int ascending = 0;
  for (size_t i = 1; i < order.size(); ++i) ascending += order[i] == order[i - 1] + 1;
  EXPECT_LT(ascending, 10) << "one is expected in a random order";
}

}  // namespace
}  // namespace octavo::engine
