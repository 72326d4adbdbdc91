// Sixteen lanes on NEON: four registers.
#pragma once

#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>

namespace bitedge {
namespace {

struct F32x16 {
  float32x4_t q[4];
};
struct I32x16 {
  int32x4_t q[4];
};
using Lanes = F32x16;   // what functions.inl computes with
using Mask = uint32_t;  // bit i: lane i

#define BITEDGE_EACH _Pragma("GCC unroll 4") for (int k = 0; k < 4; k++)

template <typename Step>
inline __attribute__((always_inline)) F32x16 f_each(const Step& step) {
  return {{step(0), step(1), step(2), step(3)}};
}
template <typename Step>
inline __attribute__((always_inline)) I32x16 i_each(const Step& step) {
  return {{step(0), step(1), step(2), step(3)}};
}

// The highest bits of sixteen lanes of ones or zeros, as a mask.
inline Mask mask_of(uint32x4_t a, uint32x4_t b, uint32x4_t c, uint32x4_t d) {
  const uint16x8_t low = vcombine_u16(vmovn_u32(a), vmovn_u32(b)), high = vcombine_u16(vmovn_u32(c), vmovn_u32(d));
  const uint8_t weights[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  const uint8x16_t bits = vandq_u8(vcombine_u8(vmovn_u16(low), vmovn_u16(high)), vld1q_u8(weights));
  return Mask(vaddv_u8(vget_low_u8(bits))) | Mask(vaddv_u8(vget_high_u8(bits))) << 8;
}
// Four bits of a mask, spread over four lanes.
inline uint32x4_t spread(Mask m, int k) {
  const uint32_t weights[4] = {1, 2, 4, 8};
  return vtstq_u32(vdupq_n_u32(m >> (4 * k)), vld1q_u32(weights));
}

inline F32x16 f_set(float x) {
  return f_each([&](int) { return vdupq_n_f32(x); });
}
inline F32x16 f_zero() { return f_set(0.0f); }
inline F32x16 f_load(const float* p) {
  return f_each([&](int k) { return vld1q_f32(p + 4 * k); });
}
inline F32x16 f_load(const float* p, int n) {
  float x[16] = {};
  for (int i = 0; i < n; i++) x[i] = p[i];
  return f_load(x);
}
inline void f_store(float* p, F32x16 x) { BITEDGE_EACH vst1q_f32(p + 4 * k, x.q[k]); }
inline void f_store(float* p, F32x16 x, int n) {
  float all[16];
  f_store(all, x);
  for (int i = 0; i < n; i++) p[i] = all[i];
}
inline F32x16 f_add(F32x16 x, F32x16 y) {
  return f_each([&](int k) { return vaddq_f32(x.q[k], y.q[k]); });
}
inline F32x16 f_sub(F32x16 x, F32x16 y) {
  return f_each([&](int k) { return vsubq_f32(x.q[k], y.q[k]); });
}
inline F32x16 f_mul(F32x16 x, F32x16 y) {
  return f_each([&](int k) { return vmulq_f32(x.q[k], y.q[k]); });
}
inline F32x16 f_div(F32x16 x, F32x16 y) {
  return f_each([&](int k) { return vdivq_f32(x.q[k], y.q[k]); });
}
inline F32x16 f_fma(F32x16 x, F32x16 y, F32x16 z) {
  return f_each([&](int k) { return vfmaq_f32(z.q[k], x.q[k], y.q[k]); });
}
inline Mask f_less(F32x16 x, F32x16 y) {
  return mask_of(vcltq_f32(x.q[0], y.q[0]), vcltq_f32(x.q[1], y.q[1]), vcltq_f32(x.q[2], y.q[2]),
                 vcltq_f32(x.q[3], y.q[3]));
}
// x > best ? x : best
inline F32x16 f_greater_of(F32x16 x, F32x16 best) {
  return f_each([&](int k) { return vbslq_f32(vcgtq_f32(x.q[k], best.q[k]), x.q[k], best.q[k]); });
}
// x < best ? x : best
inline F32x16 f_lesser_of(F32x16 x, F32x16 best) {
  return f_each([&](int k) { return vbslq_f32(vcltq_f32(x.q[k], best.q[k]), x.q[k], best.q[k]); });
}
inline F32x16 f_if_less(F32x16 x, F32x16 y, F32x16 yes, F32x16 no) {
  return f_each([&](int k) { return vbslq_f32(vcltq_f32(x.q[k], y.q[k]), yes.q[k], no.q[k]); });
}
inline F32x16 f_select(Mask m, F32x16 yes, F32x16 no) {
  return f_each([&](int k) { return vbslq_f32(spread(m, k), yes.q[k], no.q[k]); });
}
// y < 0 ? slope·y : y
inline F32x16 f_prelu(F32x16 y, F32x16 slope) { return f_if_less(y, f_zero(), f_mul(slope, y), y); }
// Lane l is lane at[l] of x.
inline F32x16 f_permute(F32x16 x, const int32_t* at) {
  const auto bytes = [](float32x4_t q) { return vreinterpretq_u8_f32(q); };
  const uint8x16x4_t table = {{bytes(x.q[0]), bytes(x.q[1]), bytes(x.q[2]), bytes(x.q[3])}};
  return f_each([&](int k) {  // bytes 4·i to 4·i + 3
    const uint32x4_t i = vreinterpretq_u32_s32(vld1q_s32(at + 4 * k));
    const uint32x4_t which = vmlaq_n_u32(vdupq_n_u32(0x03020100), i, 0x04040404);
    return vreinterpretq_f32_u8(vqtbl4q_u8(table, vreinterpretq_u8_u32(which)));
  });
}
inline F32x16 f_round(F32x16 x) {
  return f_each([&](int k) { return vrndnq_f32(x.q[k]); });
}
inline F32x16 f_power_of_two(F32x16 n) {
  return f_each([&](int k) {
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(n.q[k]), vdupq_n_s32(127)), 23));
  });
}
inline F32x16 f_from_bytes(const uint8_t* p) {
  const uint8x16_t bytes = vld1q_u8(p);
  const uint16x8_t low = vmovl_u8(vget_low_u8(bytes)), high = vmovl_u8(vget_high_u8(bytes));
  return {{vcvtq_f32_u32(vmovl_u16(vget_low_u16(low))), vcvtq_f32_u32(vmovl_u16(vget_high_u16(low))),
           vcvtq_f32_u32(vmovl_u16(vget_low_u16(high))), vcvtq_f32_u32(vmovl_u16(vget_high_u16(high)))}};
}

inline I32x16 i_zero() {
  return i_each([](int) { return vdupq_n_s32(0); });
}
inline I32x16 i_load(const int32_t* p) {
  return i_each([&](int k) { return vld1q_s32(p + 4 * k); });
}
inline void i_store(int32_t* p, I32x16 x) { BITEDGE_EACH vst1q_s32(p + 4 * k, x.q[k]); }
inline I32x16 i_add(I32x16 x, I32x16 y) {
  return i_each([&](int k) { return vaddq_s32(x.q[k], y.q[k]); });
}
inline I32x16 i_sub(I32x16 x, I32x16 y) {
  return i_each([&](int k) { return vsubq_s32(x.q[k], y.q[k]); });
}
inline I32x16 i_twice(I32x16 x) { return i_add(x, x); }
inline Mask i_less(I32x16 x, I32x16 y) {
  return mask_of(vcltq_s32(x.q[0], y.q[0]), vcltq_s32(x.q[1], y.q[1]), vcltq_s32(x.q[2], y.q[2]),
                 vcltq_s32(x.q[3], y.q[3]));
}
inline F32x16 i_float(I32x16 x) {
  return f_each([&](int k) { return vcvtq_f32_s32(x.q[k]); });
}

}  // namespace
}  // namespace bitedge
