#include "kernels/cpu/matmul.h"

#include <algorithm>
#include <map>
#include <tuple>
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
  bool accumulate;

  bool operator<(const Shape& other) const { return Key() < other.Key(); }
  std::tuple<int64_t, int64_t, int64_t, Layout, Layout, ResultType, bool, bool> Key() const {
    return {m, n, k, a_layout, b_layout, c_type, bias, accumulate};
  }
};

constexpr Shape kProbe = {.m = 64,
                          .n = 64,
                          .k = 64,
                          .a_layout = Layout::kNormal,
                          .b_layout = Layout::kNormal,
                          .c_type = ResultType::kFloat32,
                          .bias = false,
                          .accumulate = false};

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
          .accumulate = op.accumulate};
}

// A [rows, k] operand as oneDNN's source.
memory::desc SourceOf(int64_t rows, int64_t k, Layout layout, memory::data_type type) {
  return layout == Layout::kNormal ? memory::desc({rows, k}, type, memory::dims{k, 1})
                                   : memory::desc({rows, k}, type, memory::dims{1, rows});
}

// A [rows, k] operand as oneDNN's weights, which are [k, rows].
memory::desc WeightsOf(int64_t rows, int64_t k, Layout layout, memory::data_type type) {
  return layout == Layout::kNormal ? memory::desc({k, rows}, type, memory::dims{1, k})
                                   : memory::desc({k, rows}, type, memory::dims{rows, 1});
}

dnnl::matmul::primitive_desc Describe(const Shape& shape, memory::data_type operands,
                                      const dnnl::engine& engine) {
  const memory::data_type result =
      shape.c_type == ResultType::kFloat32 ? memory::data_type::f32 : memory::data_type::bf16;
  const memory::desc a = SourceOf(shape.m, shape.k, shape.a_layout, operands);
  const memory::desc b = WeightsOf(shape.n, shape.k, shape.b_layout, operands);
  const memory::desc c({shape.m, shape.n}, result, memory::dims{shape.n, 1});
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

void RoundAll(const float* from, bfloat16* to, int64_t count) {
#pragma omp parallel for schedule(static)
  for (int64_t start = 0; start < count; start += kChunk)
    RoundRow(from + start, std::min(kChunk, count - start), to + start);
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
      return Execute(ShapeOf(operation), operation.a, operation.b, operation.bias, operation.c);
    }
    const int64_t a_count = operation.m * operation.k;
    const int64_t b_count = operation.n * operation.k;
    ASSIGN_OR_RETURN(const WideOperands wide, GetWideOperands(a_count, b_count));
    WidenAll(operation.a, wide.a, a_count);
    WidenAll(operation.b, wide.b, b_count);
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
    if (operation.c_type == ResultType::kFloat32)
      return Execute(shape, wide.a, wide.b, bias, operation.c);
    ASSIGN_OR_RETURN(float* const c, wide_c_.Get<float>(operation.m * operation.n));
    RETURN_IF_ERROR(Execute(shape, wide.a, wide.b, bias, c));
    RoundAll(c, static_cast<bfloat16*>(operation.c), operation.m * operation.n);
    return absl::OkStatus();
  }

 private:
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
