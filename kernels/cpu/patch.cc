#include "kernels/cpu/patch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/patch.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Below what must come first.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/vectors_inl.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

// Magnitudes of BF16 numbers as integers order like the numbers, and are not negative.
using ShortTag = hn::CappedTag<int16_t, kSide>;
using Shorts = hn::VFromD<ShortTag>;
constexpr int kShorts = static_cast<int>(hn::MaxLanes(ShortTag()));

HWY_INLINE Shorts Magnitude(const bfloat16* x) {
  const ShortTag d;
  const Shorts bits = hn::LoadU(d, reinterpret_cast<const int16_t*>(x));
  return hn::And(bits, hn::Set(d, 0x7FFF));
}

// 0 for NaN.
HWY_INLINE Shorts MagnitudeOfNumber(const bfloat16* x) {
  const Shorts magnitude = Magnitude(x);
  return hn::IfThenZeroElse(hn::Gt(magnitude, hn::Set(ShortTag(), 0x7F80)), magnitude);
}

HWY_INLINE float ToFloat32(int16_t magnitude) {
  return ToFloat(bfloat16{static_cast<uint16_t>(magnitude)});
}

HWY_INLINE float LargestLane(Shorts x) {
  int16_t lanes[kShorts];
  hn::StoreU(x, ShortTag(), lanes);
  return ToFloat32(*std::max_element(lanes, lanes + kShorts));
}

HWY_INLINE Shorts LargestOfRow(const Patch& patch, int row, Shorts largest) {
  for (int c = 0; c < kSide; c += kShorts)
    largest = hn::Max(largest, MagnitudeOfNumber(&patch.x[row][c]));
  return largest;
}

void LargestOfRows(const Patch& patch, float* amax) {
  for (int row = 0; row < kSide; ++row)
    amax[row] = LargestLane(LargestOfRow(patch, row, hn::Zero(ShortTag())));
}

void LargestOfColumns(const Patch& patch, float* amax) {
  for (int c = 0; c < kSide; c += kShorts) {
    Shorts largest = hn::Zero(ShortTag());
    for (int row = 0; row < kSide; ++row)
      largest = hn::Max(largest, MagnitudeOfNumber(&patch.x[row][c]));
    int16_t lanes[kShorts];
    hn::StoreU(largest, ShortTag(), lanes);
    for (int i = 0; i < kShorts; ++i) amax[c + i] = ToFloat32(lanes[i]);
  }
}

float LargestOfAll(const Patch& patch) {
  Shorts largest = hn::Zero(ShortTag());
  for (int row = 0; row < kSide; ++row) largest = LargestOfRow(patch, row, largest);
  return LargestLane(largest);
}

uint32_t NonfiniteOfAll(const Patch& patch) {
  const ShortTag d;
  const Shorts last_finite = hn::Set(d, 0x7F7F);
  Shorts found = hn::Zero(d);  // at most 128 x 128 in one lane
  for (int row = 0; row < kSide; ++row) {
    for (int c = 0; c < kSide; c += kShorts) {
      const auto nonfinite = hn::Gt(Magnitude(&patch.x[row][c]), last_finite);
      found = hn::Add(found, hn::IfThenElseZero(nonfinite, hn::Set(d, 1)));
    }
  }
  int16_t lanes[kShorts];
  hn::StoreU(found, d, lanes);
  uint32_t count = 0;
  for (const int16_t lane : lanes) count += static_cast<uint32_t>(lane);
  return count;
}

// What FloatToE4m3 and FloatToE5m2 do, in numbers: kDropped mantissa bits of a float32 are rounded
// away and its exponent's bias lowered; below kFirstNormal the sum with kMagic, whose last bit is
// the format's smallest number, rounds as the format does.
struct E4m3Rounding {
  static constexpr int kDropped = 23 - 3;
  static constexpr int32_t kLargest = 0x43E00000;  // 448
  static constexpr int32_t kBias = (127 - 7) << 3;
  static constexpr int32_t kFirstNormal = 0x3C800000;  // 2^-6
  static constexpr float kMagic = 0x1p14f;
  static constexpr int32_t kMagicBits = 0x46800000;
};
struct E5m2Rounding {
  static constexpr int kDropped = 23 - 2;
  static constexpr int32_t kLargest = 0x47600000;  // 57344
  static constexpr int32_t kBias = (127 - 15) << 2;
  static constexpr int32_t kFirstNormal = 0x38800000;  // 2^-14
  static constexpr float kMagic = 0x1p7f;
  static constexpr int32_t kMagicBits = 0x43000000;
};

template <typename Rounding>
HWY_INLINE hn::VFromD<IntegerTag> CodeOf(hn::VFromD<FloatTag> x) {
  const FloatTag d;
  const IntegerTag di;
  const auto bits = hn::BitCast(di, x);
  const auto sign = hn::And(hn::ShiftRight<24>(bits), hn::Set(di, 0x80));
  const auto magnitude = hn::And(bits, hn::Set(di, 0x7FFFFFFF));
  const auto is_nan = hn::Gt(magnitude, hn::Set(di, 0x7F800000));
  const auto bounded = hn::Min(magnitude, hn::Set(di, Rounding::kLargest));
  const auto odd = hn::And(hn::ShiftRight<Rounding::kDropped>(bounded), hn::Set(di, 1));
  const auto below_half = hn::Set(di, (1 << (Rounding::kDropped - 1)) - 1);
  const auto rounded =
      hn::ShiftRight<Rounding::kDropped>(hn::Add(hn::Add(bounded, below_half), odd));
  const auto normal = hn::Sub(rounded, hn::Set(di, Rounding::kBias));
  const auto shifted = hn::Add(hn::BitCast(d, bounded), hn::Set(d, Rounding::kMagic));
  const auto subnormal = hn::Sub(hn::BitCast(di, shifted), hn::Set(di, Rounding::kMagicBits));
  const auto is_subnormal = hn::Lt(bounded, hn::Set(di, Rounding::kFirstNormal));
  const auto code = hn::Or(sign, hn::IfThenElse(is_subnormal, subnormal, normal));
  return hn::IfThenElse(is_nan, hn::Set(di, 0x7F), code);
}

template <typename Rounding>
HWY_INLINE void EncodeLanes(const bfloat16* x, Floats scales, uint8_t* codes) {
  using CodeTag = hn::Rebind<uint8_t, FloatTag>;
  const Floats scaled = Load(x) * scales;
  for (int i = 0; i < kParts; ++i) {
    const auto narrow = hn::DemoteTo(CodeTag(), CodeOf<Rounding>(scaled.part[i]));
    hn::StoreU(narrow, CodeTag(), codes + i * kPartLanes);
  }
}

template <typename Rounding>
HWY_INLINE void EncodePatch(Way way, const Patch& patch, const float* scales, Codes* codes) {
  for (int row = 0; row < kSide; ++row) {
    for (int c = 0; c < kSide; c += kLanes) {
      const Floats scale = way == Way::kRows ? Splat(scales[row]) : Load(scales + c);
      EncodeLanes<Rounding>(&patch.x[row][c], scale, &codes->code[row][c]);
    }
  }
}

void EncodeE4m3(Way way, const Patch& patch, const float* scales, Codes* codes) {
  EncodePatch<E4m3Rounding>(way, patch, scales, codes);
}

void EncodeE5m2(Way way, const Patch& patch, const float* scales, Codes* codes) {
  EncodePatch<E5m2Rounding>(way, patch, scales, codes);
}

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void TransposeSquare(const uint8_t* from, uint8_t* to) {
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 16; ++column)
      to[column * kSide + row] = from[row * kSide + column];
}
#else
// 16 x 16 bytes: four rounds, each of which interleaves line i with line i + 8, rotate the index
// bits of row and column by one each; after four they have changed places.
HWY_INLINE void TransposeSquare(const uint8_t* from, uint8_t* to) {
  const hn::FixedTag<uint8_t, 16> d;
  hn::VFromD<decltype(d)> lines[16];
  for (int i = 0; i < 16; ++i) lines[i] = hn::LoadU(d, from + i * kSide);
  for (int round = 0; round < 4; ++round) {
    hn::VFromD<decltype(d)> mixed[16];
    for (int i = 0; i < 8; ++i) {
      mixed[2 * i] = hn::InterleaveLower(d, lines[i], lines[i + 8]);
      mixed[2 * i + 1] = hn::InterleaveUpper(d, lines[i], lines[i + 8]);
    }
    for (int i = 0; i < 16; ++i) lines[i] = mixed[i];
  }
  for (int i = 0; i < 16; ++i) hn::StoreU(lines[i], d, to + i * kSide);
}
#endif

void TransposeCodes(const Codes& codes, Codes* transposed) {
  for (int row = 0; row < kSide; row += 16) {
    for (int column = 0; column < kSide; column += 16)
      TransposeSquare(&codes.code[row][column], &transposed->code[column][row]);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octavo::kernels::cpu {
namespace {

HWY_EXPORT(LargestOfRows);
HWY_EXPORT(LargestOfColumns);
HWY_EXPORT(LargestOfAll);
HWY_EXPORT(NonfiniteOfAll);
HWY_EXPORT(EncodeE4m3);
HWY_EXPORT(EncodeE5m2);
HWY_EXPORT(TransposeCodes);

}  // namespace

void LargestOfTiles(Way way, const Patch& patch, float* amax) {
  way == Way::kRows ? HWY_DYNAMIC_DISPATCH(LargestOfRows)(patch, amax)
                    : HWY_DYNAMIC_DISPATCH(LargestOfColumns)(patch, amax);
}

float LargestOf(const Patch& patch) { return HWY_DYNAMIC_DISPATCH(LargestOfAll)(patch); }

uint32_t CountNonfinite(const Patch& patch) { return HWY_DYNAMIC_DISPATCH(NonfiniteOfAll)(patch); }

void Encode(Element element, Way way, const Patch& patch, const float* scales, Codes* codes) {
  element == Element::kE4M3 ? HWY_DYNAMIC_DISPATCH(EncodeE4m3)(way, patch, scales, codes)
                            : HWY_DYNAMIC_DISPATCH(EncodeE5m2)(way, patch, scales, codes);
}

void Transpose(const Codes& codes, Codes* transposed) {
  HWY_DYNAMIC_DISPATCH(TransposeCodes)(codes, transposed);
}

}  // namespace octavo::kernels::cpu
#endif  // HWY_ONCE
