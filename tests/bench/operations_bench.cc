// Times of a backend's operations at the shapes of one layer of a 135M model and 512 tokens.
// Processor time of one thread, the best of several runs: comparable on a shared machine.
//
//   operations_bench [backend]
//
// Products are measured against as many products at GemmBf16's rate, fused operations against the
// operations that they stand for, everything else against a copy of the bytes that the operation
// must at least read and write.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "tests/bench/figure.h"
#include "tests/support/numbers.h"

namespace octavo::kernels {
namespace {

constexpr int kRuns = 10;
constexpr int64_t kTokens = 512;
constexpr int64_t kManyTokens = 4096;  // what fusing saves are passes through memory, not caches
constexpr int64_t kWidth = 576;
constexpr int64_t kInner = 1536;
constexpr int64_t kHeads = 9;
constexpr int64_t kKvHeads = 3;
constexpr int64_t kHeadDim = 64;
constexpr int64_t kVocabulary = 49152;
constexpr double kGemmProducts = 2.0 * kTokens * kInner * kWidth;

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
  QuantizedTensor Quantized(const QuantizedSpec& spec) {
    return {.spec = spec, .data = Make<uint8_t>(backend_->QuantizedBytes(spec))};
  }
  bfloat16* Numbers(int64_t count) { return Put(testing_support::NormalBfloat16(count, 1)); }

  // Seconds of one run of an operation or a program.
  template <typename Work>
  double TimeOnce(const Work& work) {
    const double start = ProcessorSeconds();
    Require(backend_->Run(work));
    Require(backend_->Synchronize());
    return ProcessorSeconds() - start;
  }
  // Of the best of several.
  template <typename Work>
  double Time(const Work& work) {
    double best = std::numeric_limits<double>::infinity();
    for (int run = 0; run < kRuns; ++run) best = std::min(best, TimeOnce(work));
    return best;
  }

  // `products`: multiplications and additions of one run.
  template <typename Operation>
  void MeasureProducts(const std::string& name, double products, const Operation& operation) {
    Report(
        name, Time(operation),
        bench::Baseline{"as many products in GemmBf16", products * gemm_seconds_ / kGemmProducts});
  }
  // `bytes`: read and written by one run.
  template <typename Operation>
  void MeasureBytes(const std::string& name, double bytes, const Operation& operation) {
    Report(name, Time(operation),
           bench::Baseline{"as many bytes copied", bytes * copy_seconds_per_byte_});
  }

  void MeasureFused(const std::string& name, const Operation& operation, const Program& in_turn) {
    double fused = std::numeric_limits<double>::infinity();
    double apart = fused;
    for (int run = 0; run < kRuns; ++run) {  // by turns, so that both meet the same machine
      fused = std::min(fused, TimeOnce(operation));
      apart = std::min(apart, TimeOnce(in_turn));
    }
    Report(name, fused, bench::Baseline{"the same in turn", apart});
  }

  // What the others are measured against.
  void MeasureBaselines();

 private:
  static void Report(const std::string& name, double seconds,
                     const std::optional<bench::Baseline>& baseline) {
    bench::Print({"operation/" + name, seconds, "s of processor time", baseline});
  }
  static void Require(const absl::Status& status) {
    if (status.ok()) return;
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    std::exit(1);
  }
  Backend* backend_;
  std::vector<Buffer<char>> buffers_;
  double gemm_seconds_ = 0;           // of kGemmProducts
  double copy_seconds_per_byte_ = 0;  // read and written bytes both count
};

void Bench::MeasureBaselines() {
  gemm_seconds_ = Time(GemmBf16{.a = Numbers(kTokens * kWidth),
                                .b = Numbers(kInner * kWidth),
                                .a_layout = Layout::kNormal,
                                .b_layout = Layout::kNormal,
                                .m = kTokens,
                                .n = kInner,
                                .k = kWidth,
                                .bias = nullptr,
                                .c = Make<bfloat16>(kTokens * kInner),
                                .c_type = ResultType::kBfloat16,
                                .accumulate = false});
  Report("GemmBf16", gemm_seconds_, std::nullopt);
  constexpr int64_t kCopied = int64_t{1} << 26;  // more than the caches hold
  char* const from = Make<char>(kCopied);
  char* const to = Make<char>(kCopied);
  Require(backend_->Run(FillZero{.memory = from, .bytes = kCopied}));
  const double best = Time(Copy{.to = to, .from = from, .bytes = kCopied});
  copy_seconds_per_byte_ = best / (2.0 * kCopied);
  Report("Copy of 64 MiB", best, std::nullopt);
}

QuantizedSpec Turned(QuantizedSpec spec) {
  std::swap(spec.rows, spec.columns);
  return spec;
}

void MeasureLinear(Bench* bench) {
  const QuantizedSpec input = {
      .rows = kTokens, .columns = kWidth, .tile = Tile::k1x128, .role = Role::kA};
  const QuantizedSpec weight = {
      .rows = kInner, .columns = kWidth, .tile = Tile::k128x128, .role = Role::kB};
  const QuantizeTiles tiles = {.x = bench->Numbers(kTokens * kWidth),
                               .rows = kTokens,
                               .columns = kWidth,
                               .tiles = {.by_rows = bench->Quantized(input),
                                         .by_columns = bench->Quantized(Turned(input)),
                                         .nonfinite = bench->Put<uint64_t>({0})}};
  const QuantizeBlocks blocks = {.x = bench->Put(testing_support::Normal(kInner * kWidth, 2)),
                                 .rows = kInner,
                                 .columns = kWidth,
                                 .normal = bench->Quantized(weight),
                                 .transposed = bench->Quantized(Turned(weight)),
                                 .nonfinite = nullptr};
  bench->MeasureBytes("QuantizeTiles both ways", 4.0 * kTokens * kWidth, tiles);
  bench->MeasureBytes("QuantizeBlocks", 6.0 * kInner * kWidth, blocks);
  bfloat16* const c = bench->Make<bfloat16>(kTokens * kInner);
  GemmFp8 product = {.a = tiles.tiles.by_rows,
                     .b = blocks.normal,
                     .bias = nullptr,
                     .c = c,
                     .c_type = ResultType::kBfloat16,
                     .accumulate = false};
  bench->MeasureProducts("GemmFp8", kGemmProducts, product);
  bfloat16* const residual = bench->Numbers(kTokens * kInner);
  const Program in_turn = {Operation(product), Add{.a = residual,
                                                   .b = c,
                                                   .y = bench->Make<bfloat16>(kTokens * kInner),
                                                   .count = kTokens * kInner}};
  product.residual = residual;
  bench->MeasureFused("GemmFp8 with a residual", product, in_turn);
}

TileOutputs TilesOf(Bench* bench, int64_t columns) {
  const QuantizedSpec spec = {
      .rows = kManyTokens, .columns = columns, .tile = Tile::k1x128, .role = Role::kA};
  return {.by_rows = bench->Quantized(spec),
          .by_columns = bench->Quantized(Turned(spec)),
          .nonfinite = bench->Put<uint64_t>({0})};
}

void MeasureFusedWithQuantize(Bench* bench) {
  constexpr int64_t kCount = kManyTokens * kInner;
  const auto quantise = [](const bfloat16* x, const TileOutputs& tiles) {
    return QuantizeTiles{
        .x = x, .rows = kManyTokens, .columns = tiles.by_rows.spec.columns, .tiles = tiles};
  };
  RmsNormQuantize norm = {.norm = {.x = bench->Numbers(kManyTokens * kWidth),
                                   .weight = bench->Numbers(kWidth),
                                   .y = bench->Make<bfloat16>(kManyTokens * kWidth),
                                   .inverse_rms = bench->Make<float>(kManyTokens),
                                   .rows = kManyTokens,
                                   .columns = kWidth,
                                   .epsilon = 1e-5f},
                          .tiles = TilesOf(bench, kWidth)};
  const Program norm_in_turn = {Operation(norm.norm), quantise(norm.norm.y, norm.tiles)};
  norm.norm.y = nullptr;
  bench->MeasureFused("RmsNormQuantize", norm, norm_in_turn);

  SwigluQuantize swiglu = {.swiglu = {.gate = bench->Numbers(kCount),
                                      .up = bench->Numbers(kCount),
                                      .y = bench->Make<bfloat16>(kCount),
                                      .rows = kManyTokens,
                                      .columns = kInner},
                           .tiles = TilesOf(bench, kInner)};
  const Program swiglu_in_turn = {Operation(swiglu.swiglu),
                                  quantise(swiglu.swiglu.y, swiglu.tiles)};
  swiglu.swiglu.y = nullptr;
  bench->MeasureFused("SwigluQuantize", swiglu, swiglu_in_turn);

  SwigluBackwardQuantize backward = {.swiglu = {.dy = bench->Numbers(kCount),
                                                .gate = swiglu.swiglu.gate,
                                                .up = swiglu.swiglu.up,
                                                .dgate = bench->Make<bfloat16>(kCount),
                                                .dup = bench->Make<bfloat16>(kCount),
                                                .rows = kManyTokens,
                                                .columns = kInner},
                                     .dgate_tiles = TilesOf(bench, kInner),
                                     .dup_tiles = TilesOf(bench, kInner)};
  const Program backward_in_turn = {Operation(backward.swiglu),
                                    quantise(backward.swiglu.dgate, backward.dgate_tiles),
                                    quantise(backward.swiglu.dup, backward.dup_tiles)};
  backward.swiglu.dgate = backward.swiglu.dup = nullptr;
  bench->MeasureFused("SwigluBackwardQuantize", backward, backward_in_turn);
}

void MeasureFusedHeads(Bench* bench) {
  constexpr int64_t kRows = kManyTokens * kHeads;
  constexpr int64_t kCount = kRows * kHeadDim;
  std::vector<int32_t> positions(kManyTokens);
  for (int32_t i = 0; i < kManyTokens; ++i) positions[static_cast<size_t>(i)] = i;
  const Rope rope = {.x = bench->Numbers(kCount),
                     .cosine = bench->Put(testing_support::Normal(kManyTokens * kHeadDim / 2, 1)),
                     .sine = bench->Put(testing_support::Normal(kManyTokens * kHeadDim / 2, 2)),
                     .positions = bench->Put(positions),
                     .tokens = kManyTokens,
                     .heads = kHeads,
                     .head_dim = kHeadDim,
                     .inverse = false};
  RmsNormForward norm = {.x = bench->Numbers(kCount),
                         .weight = bench->Numbers(kHeadDim),
                         .y = nullptr,
                         .inverse_rms = bench->Put(testing_support::Normal(kRows, 3)),
                         .rows = kRows,
                         .columns = kHeadDim,
                         .epsilon = 1e-5f};
  RmsNormBackward backward = {.dy = nullptr,
                              .x = norm.x,
                              .weight = norm.weight,
                              .inverse_rms = norm.inverse_rms,
                              .dx_add = nullptr,
                              .dx = bench->Make<bfloat16>(kCount),
                              .dweight = bench->Put(std::vector<float>(kHeadDim)),
                              .rows = kRows,
                              .columns = kHeadDim};
  const HeadNormRope fused = {.norm = norm, .rope = rope};
  norm.y = rope.x;
  bench->MeasureFused("HeadNormRope", fused, {Operation(norm), rope});
  const HeadNormRopeBackward fused_backward = {.rope = rope, .norm = backward};
  backward.dy = bench->Numbers(kCount);
  bench->MeasureFused("HeadNormRopeBackward", fused_backward, {Operation(rope), backward});
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
                                    .q_tokens = kTokens,
                                    .kv_tokens = kTokens,
                                    .heads = kHeads,
                                    .kv_heads = kKvHeads,
                                    .head_dim = kHeadDim,
                                    .scale = 0.125f};
  bench->MeasureProducts("AttentionForward", kProducts, forward);
  bench->MeasureProducts("AttentionBackward", kProducts * 2.5,
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
                                           .q_tokens = kTokens,
                                           .kv_tokens = kTokens,
                                           .heads = kHeads,
                                           .kv_heads = kKvHeads,
                                           .head_dim = kHeadDim,
                                           .scale = 0.125f});
}

void MeasureRest(Bench* bench) {
  constexpr int64_t kCount = kTokens * kInner;
  bfloat16* const x = bench->Numbers(kCount);
  bfloat16* const y = bench->Make<bfloat16>(kCount);
  bench->MeasureBytes(
      "SwigluForward", 6.0 * kCount,
      SwigluForward{.gate = x, .up = x, .y = y, .rows = kTokens, .columns = kInner});
  bench->MeasureBytes("RmsNormForward", 4.0 * kTokens * kWidth,
                      RmsNormForward{.x = x,
                                     .weight = x,
                                     .y = y,
                                     .inverse_rms = bench->Make<float>(kTokens),
                                     .rows = kTokens,
                                     .columns = kWidth,
                                     .epsilon = 1e-5f});
  bench->MeasureBytes("CrossEntropy gradient", 4.0 * kTokens * kVocabulary,
                      CrossEntropy{.logits = bench->Numbers(kTokens * kVocabulary),
                                   .targets = bench->Put(std::vector<int32_t>(kTokens, 5)),
                                   .loss = bench->Make<float>(kTokens),
                                   .tokens = kTokens,
                                   .vocabulary = kVocabulary,
                                   .write_gradient = true,
                                   .gradient_scale = 1.0f / kTokens});
  const std::vector<float> zeros(10'000'000);
  StepState state = {};
  state.learning_rate = 1e-3;
  state.apply = 1;
  state.gradient_scale = 1;
  state.correction1 = 0.1;
  state.correction2 = 0.05;
  bench->MeasureBytes("AdamW", 28.0 * static_cast<double>(zeros.size()),
                      AdamW{.master = bench->Put(zeros),
                            .gradient = bench->Put(zeros),
                            .exp_avg = bench->Put(zeros),
                            .exp_avg_sq = bench->Put(zeros),
                            .count = static_cast<int64_t>(zeros.size()),
                            .beta1 = 0.9,
                            .beta2 = 0.95,
                            .epsilon = 1e-8,
                            .weight_decay = 0.1,
                            .state = bench->Put<StepState>({state})});
}

int MeasureAll(const std::string& name) {
  auto backend = OpenBackend(name, {.memory_bytes = 0, .threads = 1});
  if (!backend.ok()) {
    std::fprintf(stderr, "%s\n", std::string(backend.status().message()).c_str());
    return 1;
  }
  Bench bench(backend->get());
  bench.MeasureBaselines();
  MeasureLinear(&bench);
  MeasureFusedWithQuantize(&bench);
  MeasureFusedHeads(&bench);
  MeasureAttention(&bench);
  MeasureRest(&bench);
  return 0;
}

}  // namespace
}  // namespace octavo::kernels

int main(int argc, char** argv) {
  octavo::bench::SetCommand(argc, argv);
  return octavo::kernels::MeasureAll(argc > 1 ? argv[1] : "cpu");
}
