#include "kernels/cpu/matmul.h"

#include <algorithm>
#include <compare>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "dnnl.hpp"
#include "kernels/cpu/conversions.h"

namespace octavo::kernels::cpu {
namespace {

using dnnl::memory;

constexpr size_t kMaxPrimitives = 512;  // a model has a few dozen shapes; beyond, start again

constexpr int64_t kChunk = 16384;  // numbers that a thread converts at a time

// All that a primitive is built for.
struct Shape {
  int64_t m;
  int64_t n;
  int64_t k;
  Layout a_layout;
  Layout b_layout;
  ResultType c_type;
  bool bias;
  bool accumulate;  // what lies in c is added, as float32, before the sum is rounded
  int64_t a_pitch;
  int64_t b_pitch;
  int64_t c_pitch;

  auto operator<=>(const Shape&) const = default;
};

constexpr Shape kProbe = {.m = 64,
                          .n = 64,
                          .k = 64,
                          .a_layout = Layout::kNormal,
                          .b_layout = Layout::kNormal,
                          .c_type = ResultType::kFloat32,
                          .bias = false,
                          .accumulate = false,
                          .a_pitch = 64,
                          .b_pitch = 64,
                          .c_pitch = 64};

// A stored operand, before it is looked at as [rows, K].
struct Stored {
  int64_t rows;
  int64_t columns;
};

Stored StoredA(const GemmBf16& op) {
  return op.a_layout == Layout::kNormal ? Stored{op.m, op.k} : Stored{op.k, op.m};
}

Stored StoredB(const GemmBf16& op) {
  return op.b_layout == Layout::kNormal ? Stored{op.n, op.k} : Stored{op.k, op.n};
}

struct Prepared {
  dnnl::matmul::primitive_desc descriptor;
  dnnl::matmul primitive;
};

Shape ShapeOf(const GemmBf16& op) {
  return {.m = op.m,
          .n = op.n,
          .k = op.k,
          .a_layout = op.a_layout,
          .b_layout = op.b_layout,
          .c_type = op.c_type,
          .bias = op.bias != nullptr,
          .accumulate = op.accumulate || op.residual != nullptr,
          .a_pitch = PitchOr(op.a_pitch, StoredA(op).columns),
          .b_pitch = PitchOr(op.b_pitch, StoredB(op).columns),
          .c_pitch = PitchOr(op.c_pitch, op.n)};
}

// A [rows, k] operand as oneDNN's source.
memory::desc SourceOf(const memory::dims& shape, Layout layout, int64_t pitch,
                      memory::data_type type) {
  return layout == Layout::kNormal ? memory::desc(shape, type, memory::dims{pitch, 1})
                                   : memory::desc(shape, type, memory::dims{1, pitch});
}

// A [rows, k] operand as oneDNN's weights, which are [k, rows].
memory::desc WeightsOf(const memory::dims& shape, Layout layout, int64_t pitch,
                       memory::data_type type) {
  return layout == Layout::kNormal ? memory::desc(shape, type, memory::dims{1, pitch})
                                   : memory::desc(shape, type, memory::dims{pitch, 1});
}

dnnl::matmul::primitive_desc Describe(const Shape& shape, memory::data_type operands,
                                      const dnnl::engine& engine) {
  const memory::data_type result =
      shape.c_type == ResultType::kFloat32 ? memory::data_type::f32 : memory::data_type::bf16;
  const memory::desc a = SourceOf({shape.m, shape.k}, shape.a_layout, shape.a_pitch, operands);
  const memory::desc b = WeightsOf({shape.k, shape.n}, shape.b_layout, shape.b_pitch, operands);
  const memory::desc c({shape.m, shape.n}, result, memory::dims{shape.c_pitch, 1});
  dnnl::primitive_attr attributes;
  if (shape.accumulate) {
    dnnl::post_ops after;
    after.append_sum(1.0f);
    attributes.set_post_ops(after);
  }
  const memory::desc bias({1, shape.n}, operands, memory::dims{shape.n, 1});
#if DNNL_VERSION_MAJOR >= 3
  return shape.bias ? dnnl::matmul::primitive_desc(engine, a, b, bias, c, attributes)
                    : dnnl::matmul::primitive_desc(engine, a, b, c, attributes);
#else
  const dnnl::matmul::desc product =
      shape.bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
  return dnnl::matmul::primitive_desc(product, attributes, engine);
#endif
}

void WidenAll(const bfloat16* from, float* to, int64_t count) {
#pragma omp parallel for schedule(static)
  for (int64_t start = 0; start < count; start += kChunk)
    WidenRow(from + start, std::min(kChunk, count - start), to + start);
}

void WidenRows(const bfloat16* from, int64_t pitch, const Stored& stored, float* to) {
  if (PitchOr(pitch, stored.columns) == stored.columns)
    return WidenAll(from, to, stored.rows * stored.columns);
#pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < stored.rows; ++row)
    WidenRow(from + row * pitch, stored.columns, to + row * stored.columns);
}

// Of a product, which lies without gaps in `from`: c = from (+ residual).
void RoundResult(const GemmBf16& op, const float* from) {
  auto* const c = static_cast<bfloat16*>(op.c);
  const int64_t c_pitch = PitchOr(op.c_pitch, op.n);
  const int64_t residual_pitch = PitchOr(op.residual_pitch, op.n);
#pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < op.m; ++row) {
    const float* const sums = from + row * op.n;
    if (op.residual == nullptr) {
      RoundRow(sums, op.n, c + row * c_pitch);
    } else {
      AddAndRoundRow(sums, op.residual + row * residual_pitch, op.n, c + row * c_pitch);
    }
  }
}

// Puts the residual where the product adds to it.
void CopyResidual(const GemmBf16& op) {
  auto* const c = static_cast<bfloat16*>(op.c);
  if (op.residual == nullptr || op.residual == c) return;
  const int64_t c_pitch = PitchOr(op.c_pitch, op.n);
  const int64_t residual_pitch = PitchOr(op.residual_pitch, op.n);
#pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < op.m; ++row)
    std::copy_n(op.residual + row * residual_pitch, op.n, c + row * c_pitch);
}

uint32_t EffectiveIsa() { return static_cast<uint32_t>(dnnl::get_effective_cpu_isa()); }

// A run on such a processor is several times slower: said once a process, and by Describe().
void LogWidening() {
  static const bool logged = [] {
    LogWarning(
        "oneDNN finds no BF16 products on this processor (OCTAVO_CPU_ISA may hide them): "
        "operands of matrix products are widened to float32");
    return true;
  }();
  static_cast<void>(logged);
}

class OneDnnMatmul final : public Matmul {
 public:
  OneDnnMatmul(Memory* memory, Operands operands)
      : widens_(operands == Operands::kFloat32 || !HasBfloat16Products(EffectiveIsa())),
        wide_a_(memory),
        wide_b_(memory),
        wide_bias_(memory),
        wide_c_(memory) {
    implementation_ = cpu::Describe(kProbe, this->operands(), engine_).impl_info_str();
    if (widens_ && operands == Operands::kBest) LogWidening();
  }

  std::string Describe() const override {
    const dnnl_version_t* const version = dnnl_version();
    return absl::StrCat("oneDNN ", version->major, ".", version->minor, ".", version->patch,
                        widens_ ? " f32, widened from bf16" : " bf16", " (", implementation_, ")");
  }

  bool float32_products() const override { return widens_; }

  absl::Status Reserve(const ScratchSizes& bytes) override {
    RETURN_IF_ERROR(wide_a_.Get<char>(bytes.wide_a).status());
    RETURN_IF_ERROR(wide_b_.Get<char>(bytes.wide_b).status());
    RETURN_IF_ERROR(wide_bias_.Get<char>(bytes.wide_bias).status());
    return wide_c_.Get<char>(bytes.wide_c).status();
  }

  absl::Status Run(const GemmBf16& operation) override {
    if (!widens_) {
      CopyResidual(operation);
      ASSIGN_OR_RETURN(const GemmBf16 product, WithWholeRow(operation));
      return Execute(ShapeOf(product), product.a, product.b, product.bias, product.c);
    }
    const int64_t a_count = operation.m * operation.k;
    const int64_t b_count = operation.n * operation.k;
    ASSIGN_OR_RETURN(const WideOperands wide, GetWideOperands(a_count, b_count));
    WidenRows(operation.a, operation.a_pitch, StoredA(operation), wide.a);
    WidenRows(operation.b, operation.b_pitch, StoredB(operation), wide.b);
    return RunWide(operation, wide);
  }

  absl::StatusOr<WideOperands> GetWideOperands(int64_t a_count, int64_t b_count) override {
    CHECK(widens_);
    ASSIGN_OR_RETURN(float* const a, wide_a_.Get<float>(a_count));
    ASSIGN_OR_RETURN(float* const b, wide_b_.Get<float>(b_count));
    return WideOperands{.a = a, .b = b};
  }

  // oneDNN's float32 product writes float32 alone; a BF16 result is rounded afterwards.
  absl::Status RunWide(const GemmBf16& operation, const WideOperands& wide) override {
    CHECK(widens_);
    ASSIGN_OR_RETURN(float* const bias, wide_bias_.Get<float>(operation.n));
    if (operation.bias != nullptr) WidenAll(operation.bias, bias, operation.n);
    Shape shape = ShapeOf(operation);
    shape.c_type = ResultType::kFloat32;
    shape.a_pitch = StoredA(operation).columns;  // wide operands have no gaps
    shape.b_pitch = StoredB(operation).columns;
    if (operation.c_type == ResultType::kFloat32)
      return Execute(shape, wide.a, wide.b, bias, operation.c);
    shape.c_pitch = operation.n;
    shape.accumulate = false;
    ASSIGN_OR_RETURN(float* const c, wide_c_.Get<float>(operation.m * operation.n));
    RETURN_IF_ERROR(Execute(shape, wide.a, wide.b, bias, c));
    RoundResult(operation, c);
    return absl::OkStatus();
  }

 private:
  // oneDNN 3.7 reads a single row whose elements lie a pitch apart as if they were neighbours.
  absl::StatusOr<GemmBf16> WithWholeRow(GemmBf16 op) {
    const int64_t pitch = PitchOr(op.a_pitch, op.m);
    if (op.m != 1 || op.a_layout == Layout::kNormal || pitch == 1) return op;
    ASSIGN_OR_RETURN(bfloat16* const row, wide_a_.Get<bfloat16>(op.k));
    for (int64_t i = 0; i < op.k; ++i) row[i] = op.a[i * pitch];
    op.a = row;
    op.a_pitch = 0;
    return op;
  }

  memory::data_type operands() const {
    return widens_ ? memory::data_type::f32 : memory::data_type::bf16;
  }

  const Prepared& Prepare(const Shape& shape) {
    auto found = prepared_.find(shape);
    if (found == prepared_.end()) {
      if (prepared_.size() >= kMaxPrimitives) prepared_.clear();
      const auto descriptor = cpu::Describe(shape, operands(), engine_);
      found = prepared_.emplace(shape, Prepared{descriptor, dnnl::matmul(descriptor)}).first;
    }
    return found->second;
  }

  absl::Status Execute(const Shape& shape, const void* a, const void* b, const void* bias,
                       void* c) {
    try {
      Enqueue(shape, a, b, bias, c);
      stream_.wait();
      return absl::OkStatus();
    } catch (const dnnl::error& error) {
      return absl::InternalError(absl::StrCat("oneDNN product of ", shape.m, " x ", shape.n, " x ",
                                              shape.k, ": ", error.message));
    }
  }

  void Enqueue(const Shape& shape, const void* a, const void* b, const void* bias, void* c) {
    const auto& [descriptor, primitive] = Prepare(shape);
    const auto wrap = [this](const memory::desc& shape_of, const void* data) {
      return memory(shape_of, engine_, const_cast<void*>(data));
    };
    std::unordered_map<int, memory> arguments = {
        {DNNL_ARG_SRC, wrap(descriptor.src_desc(), a)},
        {DNNL_ARG_WEIGHTS, wrap(descriptor.weights_desc(), b)},
        {DNNL_ARG_DST, wrap(descriptor.dst_desc(), c)}};
    if (shape.bias) arguments.emplace(DNNL_ARG_BIAS, wrap(descriptor.bias_desc(), bias));
    primitive.execute(stream_, arguments);
  }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  const bool widens_;
  std::string implementation_;
  std::map<Shape, Prepared> prepared_;
  Scratch wide_a_;
  Scratch wide_b_;
  Scratch wide_bias_;
  Scratch wide_c_;
};

}  // namespace

bool HasBfloat16Products(uint32_t isa) {
  constexpr auto kBfloat16 = static_cast<uint32_t>(dnnl::cpu_isa::avx512_core_bf16);
  return (isa & kBfloat16) == kBfloat16;
}

absl::StatusOr<std::unique_ptr<Matmul>> Matmul::Create(Memory* memory, Operands operands) {
  try {
    return std::unique_ptr<Matmul>(new OneDnnMatmul(memory, operands));
  } catch (const dnnl::error& error) {
    return absl::InternalError(absl::StrCat("opening oneDNN: ", error.message));
  }
}

}  // namespace octavo::kernels::cpu
