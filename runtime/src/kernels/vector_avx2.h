// Sixteen lanes on AVX2: two registers.
#pragma once

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

namespace bitedge {
namespace {

struct F32x16 {
  __m256 a, b;
};
struct I32x16 {
  __m256i a, b;
};
using Lanes = F32x16;   // what functions.inl computes with
using Mask = uint32_t;  // bit i: lane i

// Lanes 0 to n - 1 of eight, as loads and stores want them; n may lie outside of [0, 8].
inline __m256i lanes_below(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
// Each bit of the low byte, spread over a lane.
inline __m256i spread(Mask m) {
  const __m256i bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(int(m)), bits), bits);
}

inline F32x16 f_zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline F32x16 f_set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline F32x16 f_load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline F32x16 f_load(const float* p, int n) {
  return {_mm256_maskload_ps(p, lanes_below(n)), _mm256_maskload_ps(p + 8, lanes_below(n - 8))};
}
inline void f_store(float* p, F32x16 x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
inline void f_store(float* p, F32x16 x, int n) {
  _mm256_maskstore_ps(p, lanes_below(n), x.a);
  _mm256_maskstore_ps(p + 8, lanes_below(n - 8), x.b);
}
inline F32x16 f_add(F32x16 x, F32x16 y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
inline F32x16 f_sub(F32x16 x, F32x16 y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
inline F32x16 f_mul(F32x16 x, F32x16 y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
inline F32x16 f_div(F32x16 x, F32x16 y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
inline F32x16 f_fma(F32x16 x, F32x16 y, F32x16 z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
inline Mask mask_of(__m256 low, __m256 high) {
  return Mask(_mm256_movemask_ps(low)) | Mask(_mm256_movemask_ps(high)) << 8;
}
inline Mask f_less(F32x16 x, F32x16 y) {
  return mask_of(_mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ));
}
inline F32x16 f_greater_of(F32x16 x, F32x16 best) {
  return {_mm256_max_ps(x.a, best.a), _mm256_max_ps(x.b, best.b)};
}  // x > best ? x : best
// x < best ? x : best
inline F32x16 f_lesser_of(F32x16 x, F32x16 best) { return {_mm256_min_ps(x.a, best.a), _mm256_min_ps(x.b, best.b)}; }
inline F32x16 f_if_less(F32x16 x, F32x16 y, F32x16 yes, F32x16 no) {
  return {_mm256_blendv_ps(no.a, yes.a, _mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ)),
          _mm256_blendv_ps(no.b, yes.b, _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ))};
}
inline F32x16 f_select(Mask m, F32x16 yes, F32x16 no) {
  return {_mm256_blendv_ps(no.a, yes.a, _mm256_castsi256_ps(spread(m))),
          _mm256_blendv_ps(no.b, yes.b, _mm256_castsi256_ps(spread(m >> 8)))};
}
// y < 0 ? slope·y : y
inline F32x16 f_prelu(F32x16 y, F32x16 slope) { return f_if_less(y, f_zero(), f_mul(slope, y), y); }
// Lane l is lane at[l] of x.
inline F32x16 f_permute(F32x16 x, const int32_t* at) {
  const auto eight = [&](const int32_t* from) {
    const __m256i i = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));  // bit 3 chooses the half
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(x.a, i), _mm256_permutevar8x32_ps(x.b, i),
                            _mm256_castsi256_ps(_mm256_slli_epi32(i, 28)));
  };
  return {eight(at), eight(at + 8)};
}
inline F32x16 f_round(F32x16 x) {
  constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(x.a, kMode), _mm256_round_ps(x.b, kMode)};
}
inline F32x16 f_power_of_two(F32x16 n) {
  const auto power = [](__m256 x) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(x), _mm256_set1_epi32(127)), 23));
  };
  return {power(n.a), power(n.b)};
}
inline F32x16 f_from_bytes(const uint8_t* p) {
  const auto eight = [](const uint8_t* from) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
  };
  return {eight(p), eight(p + 8)};
}

inline I32x16 i_zero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
inline I32x16 i_load(const int32_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 8))};
}
inline void i_store(int32_t* p, I32x16 x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x.a);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), x.b);
}
inline I32x16 i_add(I32x16 x, I32x16 y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
inline I32x16 i_sub(I32x16 x, I32x16 y) { return {_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)}; }
inline I32x16 i_twice(I32x16 x) { return i_add(x, x); }
inline Mask i_less(I32x16 x, I32x16 y) {
  return mask_of(_mm256_castsi256_ps(_mm256_cmpgt_epi32(y.a, x.a)), _mm256_castsi256_ps(_mm256_cmpgt_epi32(y.b, x.b)));
}
inline F32x16 i_float(I32x16 x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }

}  // namespace
}  // namespace bitedge
