// Sixteen lanes on AVX-512: one register.
#pragma once

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

namespace bitedge {
namespace {

using F32x16 = __m512;
using I32x16 = __m512i;
using Lanes = F32x16;   // what functions.inl computes with
using Mask = uint32_t;  // bit i: lane i

inline F32x16 f_zero() { return _mm512_setzero_ps(); }
inline F32x16 f_set(float x) { return _mm512_set1_ps(x); }
inline F32x16 f_load(const float* p) { return _mm512_loadu_ps(p); }
inline F32x16 f_load(const float* p, int n) { return _mm512_maskz_loadu_ps(__mmask16((1u << n) - 1), p); }
inline void f_store(float* p, F32x16 x) { _mm512_storeu_ps(p, x); }
inline void f_store(float* p, F32x16 x, int n) { _mm512_mask_storeu_ps(p, __mmask16((1u << n) - 1), x); }
inline F32x16 f_add(F32x16 a, F32x16 b) { return _mm512_add_ps(a, b); }
inline F32x16 f_sub(F32x16 a, F32x16 b) { return _mm512_sub_ps(a, b); }
inline F32x16 f_mul(F32x16 a, F32x16 b) { return _mm512_mul_ps(a, b); }
inline F32x16 f_div(F32x16 a, F32x16 b) { return _mm512_div_ps(a, b); }
inline F32x16 f_fma(F32x16 a, F32x16 b, F32x16 c) { return _mm512_fmadd_ps(a, b, c); }
inline Mask f_less(F32x16 a, F32x16 b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
inline F32x16 f_greater_of(F32x16 x, F32x16 best) { return _mm512_max_ps(x, best); }  // x > best ? x : best
inline F32x16 f_lesser_of(F32x16 x, F32x16 best) { return _mm512_min_ps(x, best); }   // x < best ? x : best
inline F32x16 f_select(Mask m, F32x16 yes, F32x16 no) { return _mm512_mask_blend_ps(__mmask16(m), no, yes); }
inline F32x16 f_if_less(F32x16 a, F32x16 b, F32x16 yes, F32x16 no) { return f_select(f_less(a, b), yes, no); }
// y < 0 ? slope·y : y
inline F32x16 f_prelu(F32x16 y, F32x16 slope) {
  return _mm512_mask_mul_ps(y, __mmask16(f_less(y, f_zero())), slope, y);
}
// Lane l is lane at[l] of x.
inline F32x16 f_permute(F32x16 x, const int32_t* at) { return _mm512_permutexvar_ps(_mm512_loadu_si512(at), x); }
inline F32x16 f_round(F32x16 a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline F32x16 f_power_of_two(F32x16 n) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23));
}
inline F32x16 f_from_bytes(const uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}

inline I32x16 i_zero() { return _mm512_setzero_si512(); }
inline I32x16 i_load(const int32_t* p) { return _mm512_loadu_si512(p); }
inline void i_store(int32_t* p, I32x16 x) { _mm512_storeu_si512(p, x); }
inline I32x16 i_add(I32x16 a, I32x16 b) { return _mm512_add_epi32(a, b); }
inline I32x16 i_sub(I32x16 a, I32x16 b) { return _mm512_sub_epi32(a, b); }
inline I32x16 i_twice(I32x16 a) { return _mm512_add_epi32(a, a); }
inline Mask i_less(I32x16 a, I32x16 b) { return _mm512_cmplt_epi32_mask(a, b); }
inline F32x16 i_float(I32x16 a) { return _mm512_cvtepi32_ps(a); }

}  // namespace
}  // namespace bitedge
