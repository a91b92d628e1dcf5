// Times of a backend's operations at the shapes of one layer of a 135M model and 512 tokens.
// Processor time of one thread, the best of several runs: comparable on a shared machine.
//
//   kernels_bench [backend]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/numerics/tile.h"
#include "tests/support/numbers.h"

namespace octavo::kernels {
namespace {

constexpr int kRuns = 10;
constexpr int64_t kTokens = 512;
constexpr int64_t kWidth = 576;
constexpr int64_t kInner = 1536;
constexpr int64_t kHeads = 9;
constexpr int64_t kKvHeads = 3;
constexpr int64_t kHeadDim = 64;
constexpr int64_t kVocabulary = 49152;

double ProcessorSeconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

class Bench {
 public:
  explicit Bench(Backend* backend) : backend_(backend) {}

  template <typename T>
  T* Put(const std::vector<T>& values) {
    T* const array = Make<T>(static_cast<int64_t>(values.size()));
    Require(
        backend_->CopyIn(array, values.data(), static_cast<int64_t>(values.size() * sizeof(T))));
    return array;
  }
  template <typename T>
  T* Make(int64_t count) {
    auto buffer = Buffer<char>::Create(backend_, count * static_cast<int64_t>(sizeof(T)));
    Require(buffer.status());
    buffers_.push_back(*std::move(buffer));
    return reinterpret_cast<T*>(buffers_.back().data());
  }
  bfloat16* Numbers(int64_t count) { return Put(testing_support::NormalBfloat16(count, 1)); }

  // `work`: operations or elements of one run.
  template <typename Operation>
  void Measure(const char* name, double work, const Operation& operation) {
    double best = std::numeric_limits<double>::infinity();
    for (int run = 0; run < kRuns; ++run) {
      const double start = ProcessorSeconds();
      Require(backend_->Run(operation));
      Require(backend_->Synchronize());
      best = std::min(best, ProcessorSeconds() - start);
    }
    std::printf("%-22s %9.3f ms %9.2f G/s\n", name, best * 1e3, work / best * 1e-9);
  }

 private:
  static void Require(const absl::Status& status) {
    if (status.ok()) return;
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    std::exit(1);
  }
  Backend* backend_;
  std::vector<Buffer<char>> buffers_;
};

void MeasureLinear(Bench* bench) {
  constexpr double kProducts = 2.0 * kTokens * kInner * kWidth;
  const QuantizeTiles tiles = {.x = bench->Numbers(kTokens * kWidth),
                               .rows = kTokens,
                               .columns = kWidth,
                               .row_codes = bench->Make<uint8_t>(kTokens * kWidth),
                               .row_scale_inv = bench->Make<float>(TileScales(kTokens, kWidth)),
                               .column_codes = bench->Make<uint8_t>(kTokens * kWidth),
                               .column_scale_inv = bench->Make<float>(TileScales(kWidth, kTokens)),
                               .nonfinite = bench->Put<uint32_t>({0})};
  const QuantizeBlocks blocks = {
      .x = bench->Put(testing_support::Normal(kInner * kWidth, 2)),
      .rows = kInner,
      .columns = kWidth,
      .codes = bench->Make<uint8_t>(kInner * kWidth),
      .scale_inv = bench->Make<float>(BlockScales(kInner, kWidth)),
      .transposed_codes = bench->Make<uint8_t>(kInner * kWidth),
      .transposed_scale_inv = bench->Make<float>(BlockScales(kInner, kWidth)),
      .nonfinite = nullptr};
  bench->Measure("QuantizeTiles both ways", kTokens * kWidth, tiles);
  bench->Measure("QuantizeBlocks", kInner * kWidth, blocks);
  bfloat16* const c = bench->Make<bfloat16>(kTokens * kInner);
  bench->Measure("GemmFp8", kProducts,
                 GemmFp8{.a = {.codes = tiles.row_codes,
                               .scale_inv = tiles.row_scale_inv,
                               .rows = kTokens,
                               .columns = kWidth,
                               .granularity = Granularity::kTile1x128},
                         .b = {.codes = blocks.codes,
                               .scale_inv = blocks.scale_inv,
                               .rows = kInner,
                               .columns = kWidth,
                               .granularity = Granularity::kBlock128x128},
                         .bias = nullptr,
                         .c = c,
                         .c_type = ResultType::kBfloat16,
                         .accumulate = false});
  bench->Measure("GemmBf16", kProducts,
                 GemmBf16{.a = tiles.x,
                          .b = bench->Numbers(kInner * kWidth),
                          .a_layout = Layout::kNormal,
                          .b_layout = Layout::kNormal,
                          .m = kTokens,
                          .n = kInner,
                          .k = kWidth,
                          .bias = nullptr,
                          .c = c,
                          .c_type = ResultType::kBfloat16,
                          .accumulate = false});
}

void MeasureAttention(Bench* bench) {
  constexpr double kProducts =
      2.0 * kTokens * kTokens * kHeadDim * kHeads;  // causal, both products
  constexpr int64_t kQueries = kTokens * kHeads * kHeadDim;
  constexpr int64_t kKeys = kTokens * kKvHeads * kHeadDim;
  const AttentionForward forward = {.q = bench->Numbers(kQueries),
                                    .k = bench->Numbers(kKeys),
                                    .v = bench->Numbers(kKeys),
                                    .attend_from = bench->Put(std::vector<int32_t>(kTokens, 0)),
                                    .out = bench->Make<bfloat16>(kQueries),
                                    .log_sum_exp = bench->Make<float>(kHeads * kTokens),
                                    .tokens = kTokens,
                                    .heads = kHeads,
                                    .kv_heads = kKvHeads,
                                    .head_dim = kHeadDim,
                                    .scale = 0.125f};
  bench->Measure("AttentionForward", kProducts, forward);
  bench->Measure("AttentionBackward", kProducts * 2.5,
                 AttentionBackward{.q = forward.q,
                                   .k = forward.k,
                                   .v = forward.v,
                                   .out = forward.out,
                                   .dout = bench->Numbers(kQueries),
                                   .log_sum_exp = forward.log_sum_exp,
                                   .attend_from = forward.attend_from,
                                   .dq = bench->Make<bfloat16>(kQueries),
                                   .dk = bench->Make<bfloat16>(kKeys),
                                   .dv = bench->Make<bfloat16>(kKeys),
                                   .tokens = kTokens,
                                   .heads = kHeads,
                                   .kv_heads = kKvHeads,
                                   .head_dim = kHeadDim,
                                   .scale = 0.125f});
}

void MeasureRest(Bench* bench) {
  constexpr int64_t kCount = kTokens * kInner;
  bfloat16* const x = bench->Numbers(kCount);
  bfloat16* const y = bench->Make<bfloat16>(kCount);
  bench->Measure("SwigluForward", kCount,
                 SwigluForward{.gate = x, .up = x, .y = y, .count = kCount});
  bench->Measure("RmsNormForward", kTokens * kWidth,
                 RmsNormForward{.x = x,
                                .weight = x,
                                .y = y,
                                .inverse_rms = bench->Make<float>(kTokens),
                                .rows = kTokens,
                                .columns = kWidth,
                                .epsilon = 1e-5f});
  bench->Measure("CrossEntropy gradient", kTokens * kVocabulary,
                 CrossEntropy{.logits = bench->Numbers(kTokens * kVocabulary),
                              .targets = bench->Put(std::vector<int32_t>(kTokens, 5)),
                              .loss = bench->Make<float>(kTokens),
                              .tokens = kTokens,
                              .vocabulary = kVocabulary,
                              .write_gradient = true,
                              .gradient_scale = 1.0f / kTokens});
  const std::vector<float> zeros(10'000'000);
  bench->Measure("AdamW", static_cast<double>(zeros.size()),
                 AdamW{.master = bench->Put(zeros),
                       .gradient = bench->Put(zeros),
                       .exp_avg = bench->Put(zeros),
                       .exp_avg_sq = bench->Put(zeros),
                       .count = static_cast<int64_t>(zeros.size()),
                       .gradient_scale = 1,
                       .learning_rate = 1e-3,
                       .beta1 = 0.9,
                       .beta2 = 0.95,
                       .epsilon = 1e-8,
                       .weight_decay = 0.1,
                       .correction1 = 0.1,
                       .correction2 = 0.05});
}

int Main(const std::string& name) {
  auto backend = OpenBackend(name, {.memory_bytes = 0, .threads = 1});
  if (!backend.ok()) {
    std::fprintf(stderr, "%s\n", std::string(backend.status().message()).c_str());
    return 1;
  }
  const BackendDescription description = (*backend)->Describe();
  std::printf("%s: %s, %s\n", description.name.c_str(), description.device.c_str(),
              description.matmul.c_str());
  Bench bench(backend->get());
  MeasureLinear(&bench);
  MeasureAttention(&bench);
  MeasureRest(&bench);
  return 0;
}

}  // namespace
}  // namespace octavo::kernels

int main(int argc, char** argv) { return octavo::kernels::Main(argc > 1 ? argv[1] : "cpu"); }
