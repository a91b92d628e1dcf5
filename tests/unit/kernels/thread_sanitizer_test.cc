// Under preset tsan: that the sanitizer sees what the threads of a kernel do to each other. Its
// silence over the other tests of this folder would mean nothing without this one.
#ifdef OCTAVO_SANITIZE_THREAD
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "gtest/gtest.h"

namespace octavo::kernels {
namespace {

constexpr int64_t kRows = 1000;

// Row sums into one element that all threads write, as a norm's weight gradient would be without a
// thread for each column; or into one element a row.
void SumRows(const std::vector<float>& x, int64_t elements, std::vector<float>* sums) {
#pragma omp parallel for schedule(static) num_threads(2)
  for (int64_t row = 0; row < kRows; ++row) (*sums)[row % elements] += x[row];
}

int SumRowsAndExit(int64_t elements) {
  const std::vector<float> x(kRows, 1);
  std::vector<float> sums(kRows);
  SumRows(x, elements, &sums);
  SumRows(x, kRows, &sums);  // behind the first team: its end must count as an order
  std::exit(0);
}

TEST(ThreadSanitizer, FindsTheElementThatTwoThreadsOfAKernelWrite) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(SumRowsAndExit(1), testing::ExitedWithCode(66), "data race");
}

TEST(ThreadSanitizer, FindsNothingWhereEachThreadHasRowsOfItsOwn) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(SumRowsAndExit(kRows), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace octavo::kernels
#endif  // OCTAVO_SANITIZE_THREAD
