// Sixteen lanes on AVX-512: one register.
#pragma once

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

namespace bitedge {
namespace {

using F16 = __m512;
using I16 = __m512i;
using Mask = uint32_t;  // bit i: lane i

inline F16 f_zero() { return _mm512_setzero_ps(); }
inline F16 f_set(float x) { return _mm512_set1_ps(x); }
inline F16 f_load(const float* p) { return _mm512_loadu_ps(p); }
inline F16 f_load(const float* p, int n) { return _mm512_maskz_loadu_ps(__mmask16((1u << n) - 1), p); }
inline void f_store(float* p, F16 x) { _mm512_storeu_ps(p, x); }
inline void f_store(float* p, F16 x, int n) { _mm512_mask_storeu_ps(p, __mmask16((1u << n) - 1), x); }
inline F16 f_add(F16 a, F16 b) { return _mm512_add_ps(a, b); }
inline F16 f_sub(F16 a, F16 b) { return _mm512_sub_ps(a, b); }
inline F16 f_mul(F16 a, F16 b) { return _mm512_mul_ps(a, b); }
inline F16 f_div(F16 a, F16 b) { return _mm512_div_ps(a, b); }
inline F16 f_fma(F16 a, F16 b, F16 c) { return _mm512_fmadd_ps(a, b, c); }
inline Mask f_less(F16 a, F16 b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
inline F16 f_greater_of(F16 x, F16 best) { return _mm512_max_ps(x, best); }  // x > best ? x : best
inline F16 f_select(Mask m, F16 yes, F16 no) { return _mm512_mask_blend_ps(__mmask16(m), no, yes); }
inline F16 f_round(F16 a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline F16 f_power_of_two(F16 n) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23));
}
inline F16 f_from_bytes(const uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}

inline I16 i_zero() { return _mm512_setzero_si512(); }
inline I16 i_load(const int32_t* p) { return _mm512_loadu_si512(p); }
inline void i_store(int32_t* p, I16 x) { _mm512_storeu_si512(p, x); }
inline I16 i_add(I16 a, I16 b) { return _mm512_add_epi32(a, b); }
inline I16 i_sub(I16 a, I16 b) { return _mm512_sub_epi32(a, b); }
inline I16 i_twice(I16 a) { return _mm512_add_epi32(a, a); }
inline Mask i_less(I16 a, I16 b) { return _mm512_cmplt_epi32_mask(a, b); }
inline F16 i_float(I16 a) { return _mm512_cvtepi32_ps(a); }

}  // namespace
}  // namespace bitedge
