#include "kernels/cpu/conversions.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/conversions.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Below what must come first.
#include <algorithm>

#include "kernels/cpu/vectors_inl.h"
#include "kernels/numerics/tile.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

void RoundLanes(const float* x, int64_t count, bfloat16* rounded) {
  for (int64_t i = 0; i < count; i += kLanes)
    StoreUpTo(rounded + i, LoadUpTo(x + i, count - i), count - i);
}

void AddAndRoundLanes(const float* x, const bfloat16* y, int64_t count, bfloat16* rounded) {
  for (int64_t i = 0; i < count; i += kLanes)
    StoreUpTo(rounded + i, LoadUpTo(x + i, count - i) + LoadUpTo(y + i, count - i), count - i);
}

void WidenLanes(const bfloat16* x, int64_t count, float* wide) {
  for (int64_t i = 0; i < count; i += kLanes)
    StoreUpTo(wide + i, LoadUpTo(x + i, count - i), count - i);
}

// What CodeToFloat does, in numbers: a code from kFirstNormal on is the upper bits of a float32
// whose exponent is kBiasDifference lower, one below is a multiple of kSmallest.
struct E4m3Code {
  static constexpr int kShift = 23 - 3;
  static constexpr uint32_t kBiasDifference = 127 - 7;
  static constexpr int32_t kFirstNormal = 8;
  static constexpr float kSmallest = 0x1p-9f;
  static constexpr int32_t kInfinity = 0x80;  // none
  static constexpr int32_t kFirstNaN = 0x7F;
};
struct E5m2Code {
  static constexpr int kShift = 23 - 2;
  static constexpr uint32_t kBiasDifference = 127 - 15;
  static constexpr int32_t kFirstNormal = 4;
  static constexpr float kSmallest = 0x1p-16f;
  static constexpr int32_t kInfinity = 0x7C;
  static constexpr int32_t kFirstNaN = 0x7D;
};

template <typename Code>
HWY_INLINE hn::VFromD<FloatTag> Decode(hn::VFromD<IntegerTag> code) {
  const FloatTag d;
  const IntegerTag di;
  const auto magnitude = hn::And(code, hn::Set(di, 0x7F));
  const auto sign = hn::ShiftLeft<24>(hn::And(code, hn::Set(di, 0x80)));
  const auto normal = hn::Add(hn::ShiftLeft<Code::kShift>(magnitude),
                              hn::Set(di, static_cast<int32_t>(Code::kBiasDifference << 23)));
  const auto subnormal =
      hn::BitCast(di, hn::Mul(hn::ConvertTo(d, magnitude), hn::Set(d, Code::kSmallest)));
  auto bits = hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, Code::kFirstNormal)), subnormal, normal);
  bits = hn::IfThenElse(hn::Eq(magnitude, hn::Set(di, Code::kInfinity)), hn::Set(di, 0x7F800000),
                        bits);
  bits = hn::IfThenElse(hn::Gt(magnitude, hn::Set(di, Code::kFirstNaN - 1)),
                        hn::Set(di, 0x7FC00000), bits);
  return hn::BitCast(d, hn::Or(bits, sign));
}

template <typename Code>
HWY_INLINE Floats DecodeLanes(const uint8_t* codes) {
  using CodeTag = hn::Rebind<uint8_t, FloatTag>;
  Floats x;
  for (int i = 0; i < kParts; ++i) {
    const auto narrow = hn::LoadU(CodeTag(), codes + i * kPartLanes);
    x.part[i] = Decode<Code>(hn::PromoteTo(IntegerTag(), narrow));
  }
  return x;
}

// Of numbers that BF16 holds: the upper halves.
HWY_INLINE void StoreExact(bfloat16* to, Floats x) {
  for (int i = 0; i < kParts; ++i) {
    const auto high = hn::ShiftRight<16>(hn::BitCast(WordTag(), x.part[i]));
    hn::StoreU(hn::DemoteTo(HalfWordTag(), hn::BitCast(IntegerTag(), high)), HalfWordTag(),
               BitsOf(to) + i * kPartLanes);
  }
}
HWY_INLINE void StoreExact(float* to, Floats x) { Store(to, x); }

template <typename Code, typename Out>
HWY_INLINE void DecodeTiles(const uint8_t* codes, const float* scale_inv, int64_t columns,
                            Out* out) {
  for (int64_t start = 0; start < columns; start += kScaleTile, ++scale_inv) {
    const int64_t end = std::min(start + kScaleTile, columns);
    const Floats scale = Splat(*scale_inv);
    int64_t c = start;
    for (; c + kLanes <= end; c += kLanes)
      StoreExact(out + c, DecodeLanes<Code>(codes + c) * scale);
    if (c == end) continue;
    uint8_t rest[kLanes] = {};
    std::copy(codes + c, codes + end, rest);
    StorePart(out + c, DecodeLanes<Code>(rest) * scale, end - c);
  }
}

void DecodeToBfloat16(Element element, const uint8_t* codes, const float* scale_inv,
                      int64_t columns, bfloat16* out) {
  element == Element::kE4M3 ? DecodeTiles<E4m3Code>(codes, scale_inv, columns, out)
                            : DecodeTiles<E5m2Code>(codes, scale_inv, columns, out);
}

void DecodeToFloat32(Element element, const uint8_t* codes, const float* scale_inv, int64_t columns,
                     float* out) {
  element == Element::kE4M3 ? DecodeTiles<E4m3Code>(codes, scale_inv, columns, out)
                            : DecodeTiles<E5m2Code>(codes, scale_inv, columns, out);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octavo::kernels::cpu {
namespace {

HWY_EXPORT(RoundLanes);
HWY_EXPORT(AddAndRoundLanes);
HWY_EXPORT(WidenLanes);
HWY_EXPORT(DecodeToBfloat16);
HWY_EXPORT(DecodeToFloat32);

}  // namespace

void RoundRow(const float* x, int64_t count, bfloat16* rounded) {
  HWY_DYNAMIC_DISPATCH(RoundLanes)(x, count, rounded);
}

void AddAndRoundRow(const float* x, const bfloat16* y, int64_t count, bfloat16* rounded) {
  HWY_DYNAMIC_DISPATCH(AddAndRoundLanes)(x, y, count, rounded);
}

void WidenRow(const bfloat16* x, int64_t count, float* wide) {
  HWY_DYNAMIC_DISPATCH(WidenLanes)(x, count, wide);
}

void DecodeRow(Element element, const uint8_t* codes, const float* scale_inv, int64_t columns,
               bfloat16* out) {
  HWY_DYNAMIC_DISPATCH(DecodeToBfloat16)(element, codes, scale_inv, columns, out);
}

void DecodeRow(Element element, const uint8_t* codes, const float* scale_inv, int64_t columns,
               float* out) {
  HWY_DYNAMIC_DISPATCH(DecodeToFloat32)(element, codes, scale_inv, columns, out);
}

}  // namespace octavo::kernels::cpu
#endif  // HWY_ONCE
