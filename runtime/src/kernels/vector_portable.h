// Sixteen lanes on the vector extensions of GCC and Clang: four vectors of 16 bytes, whatever the machine makes of
// them. On 32-bit ARM floats go through VFP, as the compilers see to it: NEON there flushes subnormal numbers to zero.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace bitedge {
namespace {

typedef float Floats4 __attribute__((vector_size(16)));
typedef int32_t Ints4 __attribute__((vector_size(16)));
typedef int16_t Ints8 __attribute__((vector_size(16)));
typedef double Doubles2 __attribute__((vector_size(16)));
typedef int64_t Longs2 __attribute__((vector_size(16)));

struct F32x16 {
  Floats4 q[4];
};
struct I32x16 {
  Ints4 q[4];
};
using Lanes = F32x16;   // what functions.inl computes with
using Mask = uint32_t;  // bit i: lane i

template <typename Step>
inline __attribute__((always_inline)) F32x16 f_each(const Step& step) {
  return {{step(0), step(1), step(2), step(3)}};
}
template <typename Step>
inline __attribute__((always_inline)) I32x16 i_each(const Step& step) {
  return {{step(0), step(1), step(2), step(3)}};
}
// Where `mask` is ones yes, where it is zeros no.
inline Floats4 choose(Ints4 mask, Floats4 yes, Floats4 no) {
  return (Floats4)((mask & (Ints4)yes) | (~mask & (Ints4)no));
}
inline Ints4 any_of_four(int32_t x) { return Ints4{x, x, x, x}; }

// Bit i is set where lane i of four vectors of ones or zeros is.
template <typename Quarter>
inline __attribute__((always_inline)) Mask mask_of(const Quarter& quarter) {
  const Ints4 bits = {1, 2, 4, 8};
  const Ints4 all =
      (quarter(0) & bits) | (quarter(1) & (bits << 4)) | (quarter(2) & (bits << 8)) | (quarter(3) & (bits << 12));
  return Mask(all[0] | all[1] | all[2] | all[3]);
}

// x·y + z, rounded once.
#if defined(__FP_FAST_FMAF) || defined(__ARM_FEATURE_FMA)
inline Floats4 fused(Floats4 x, Floats4 y, Floats4 z) {
  return Floats4{__builtin_fmaf(x[0], y[0], z[0]), __builtin_fmaf(x[1], y[1], z[1]), __builtin_fmaf(x[2], y[2], z[2]),
                 __builtin_fmaf(x[3], y[3], z[3])};
}
#else
// In double the product is exact, and the sum is rounded once before it is rounded to float. That second rounding is
// right unless the sum lies just between two floats, which it may do by its own rounding; subnormal floats lie further
// apart, so there it is not asked where. Those sums are rounded to odd first: when inexact, to the neighbour whose last
// bit is 1, which is never half-way.
inline Doubles2 widen(Floats4 x, int half) {
  return half ? Doubles2{double(x[2]), double(x[3])} : Doubles2{double(x[0]), double(x[1])};
}
inline Doubles2 round_to_odd(Doubles2 product, Doubles2 z, Doubles2 sum) {
  const Doubles2 part = sum - product, error = (product - (sum - part)) + (z - part);  // exact
  const Longs2 inexact = (error < 0.0) | (error > 0.0), even = ((Longs2)sum & 1) - 1;
  const Longs2 outwards = (((Longs2)error ^ (Longs2)sum) < 0) | 1;  // 1 if the error has the sign of the sum, else -1
  return (Doubles2)((Longs2)sum + (outwards & inexact & even));
}
__attribute__((noinline)) void fuse_slowly(const Doubles2* product, const Doubles2* z, const Doubles2* sum, float* to) {
  for (int half = 0; half < 2; half++) {
    const Doubles2 odd = round_to_odd(product[half], z[half], sum[half]);
    to[2 * half] = float(odd[0]);
    to[2 * half + 1] = float(odd[1]);
  }
}
inline Floats4 fused(Floats4 x, Floats4 y, Floats4 z) {
  constexpr int64_t kRest = 0x1fffffff, kHalfWay = 0x10000000;  // the bits that a float has no room for
  Doubles2 wide[2], product[2], sum[2];
  Longs2 between = {0, 0};
#pragma GCC unroll 2
  for (int half = 0; half < 2; half++) {
    wide[half] = widen(z, half);
    product[half] = widen(x, half) * widen(y, half);
    sum[half] = product[half] + wide[half];
    between |= ((Longs2)sum[half] & kRest) == kHalfWay;
  }
  const Floats4 y4 = {float(sum[0][0]), float(sum[0][1]), float(sum[1][0]), float(sum[1][1])};
  const Ints4 magnitude = (Ints4)y4 & 0x7fffffff;
  const Ints4 tiny = (magnitude <= 0x00800000) & (magnitude > 0);  // a sum that rounds to zero is exact
  const Longs2 unsure = between | (Longs2)tiny;
  if (__builtin_expect((unsure[0] | unsure[1]) == 0, 1)) return y4;
  Floats4 slow;
  fuse_slowly(product, wide, sum, reinterpret_cast<float*>(&slow));
  return slow;
}
#endif

inline F32x16 f_set(float x) {
  return f_each([&](int) { return Floats4{x, x, x, x}; });
}
inline F32x16 f_zero() { return f_set(0.0f); }
inline F32x16 f_load(const float* p) {
  F32x16 x;
  __builtin_memcpy(&x, p, sizeof x);
  return x;
}
inline F32x16 f_load(const float* p, int n) {
  float x[16] = {};
  for (int i = 0; i < n; i++) x[i] = p[i];
  return f_load(x);
}
inline void f_store(float* p, F32x16 x) { __builtin_memcpy(p, &x, sizeof x); }
inline void f_store(float* p, F32x16 x, int n) {
  float all[16];
  f_store(all, x);
  for (int i = 0; i < n; i++) p[i] = all[i];
}
inline F32x16 f_add(F32x16 x, F32x16 y) {
  return f_each([&](int k) { return x.q[k] + y.q[k]; });
}
inline F32x16 f_sub(F32x16 x, F32x16 y) {
  return f_each([&](int k) { return x.q[k] - y.q[k]; });
}
inline F32x16 f_mul(F32x16 x, F32x16 y) {
  return f_each([&](int k) { return x.q[k] * y.q[k]; });
}
inline F32x16 f_div(F32x16 x, F32x16 y) {
  return f_each([&](int k) { return x.q[k] / y.q[k]; });
}
inline F32x16 f_fma(F32x16 x, F32x16 y, F32x16 z) {
  return f_each([&](int k) { return fused(x.q[k], y.q[k], z.q[k]); });
}
inline Mask f_less(F32x16 x, F32x16 y) {
  return mask_of([&](int k) { return Ints4(x.q[k] < y.q[k]); });
}
// x > best ? x : best
inline F32x16 f_greater_of(F32x16 x, F32x16 best) {
  return f_each([&](int k) { return choose(x.q[k] > best.q[k], x.q[k], best.q[k]); });
}
// x < best ? x : best
inline F32x16 f_lesser_of(F32x16 x, F32x16 best) {
  return f_each([&](int k) { return choose(x.q[k] < best.q[k], x.q[k], best.q[k]); });
}
inline F32x16 f_if_less(F32x16 x, F32x16 y, F32x16 yes, F32x16 no) {
  return f_each([&](int k) { return choose(x.q[k] < y.q[k], yes.q[k], no.q[k]); });
}
inline F32x16 f_select(Mask m, F32x16 yes, F32x16 no) {
  return f_each([&](int k) {
    const Ints4 bits = {1, 2, 4, 8};
    return choose((any_of_four(int32_t(m >> (4 * k))) & bits) != 0, yes.q[k], no.q[k]);
  });
}
// y < 0 ? slope·y : y
inline F32x16 f_prelu(F32x16 y, F32x16 slope) { return f_if_less(y, f_zero(), f_mul(slope, y), y); }
// Lane l is lane at[l] of x.
inline F32x16 f_permute(F32x16 x, const int32_t* at) {
  float from[16], to[16];
  f_store(from, x);
  for (int i = 0; i < 16; i++) to[i] = from[at[i]];
  return f_load(to);
}
// To the nearest integer, for |x| < 2^22: what is added leaves no room for a fraction.
inline F32x16 f_round(F32x16 x) {
  const F32x16 large = f_set(12582912.0f);
  return f_sub(f_add(x, large), large);
}
// For integers in [-126, 127]: n + 127 lands in the last bits of the sum, and goes where the exponent is.
inline F32x16 f_power_of_two(F32x16 n) {
  const F32x16 sum = f_add(n, f_set(12582912.0f + 127.0f));
  return f_each([&](int k) { return (Floats4)((Ints4)sum.q[k] << 23); });
}
inline F32x16 f_from_bytes(const uint8_t* p) {
  return f_each([&](int k) {
    const uint8_t* at = p + 4 * k;
    return __builtin_convertvector((Ints4{at[0], at[1], at[2], at[3]}), Floats4);
  });
}

inline I32x16 i_zero() {
  return i_each([](int) { return Ints4{0, 0, 0, 0}; });
}
inline I32x16 i_load(const int32_t* p) {
  I32x16 x;
  __builtin_memcpy(&x, p, sizeof x);
  return x;
}
inline I32x16 i_add(I32x16 x, I32x16 y) {
  return i_each([&](int k) { return x.q[k] + y.q[k]; });
}
inline I32x16 i_sub(I32x16 x, I32x16 y) {
  return i_each([&](int k) { return x.q[k] - y.q[k]; });
}
inline I32x16 i_twice(I32x16 x) { return i_add(x, x); }
inline Mask i_less(I32x16 x, I32x16 y) {
  return mask_of([&](int k) { return Ints4(x.q[k] < y.q[k]); });
}
inline F32x16 i_float(I32x16 x) {
  return f_each([&](int k) { return __builtin_convertvector(x.q[k], Floats4); });
}

}  // namespace
}  // namespace bitedge
