#include "bare_loop.h"

#include "base/cpu.h"

#if defined(__AVX512VPOPCNTDQ__)
#include <immintrin.h>

namespace bitedge {
namespace {

// 4 pixels by 16 channels in eight registers: 3 operations for 512 products.
void tile(const uint64_t* a, const uint64_t* w, int words, int32_t* out, size_t channels) {
  __m512i acc[4][2] = {};
  for (int k = 0; k < words; k++) {
    const __m512i w0 = _mm512_loadu_si512(w + k * 8), w1 = _mm512_loadu_si512(w + (words + k) * 8);
    for (int i = 0; i < 4; i++) {
      const __m512i x = _mm512_set1_epi64(int64_t(a[i * words + k]));
      acc[i][0] = _mm512_add_epi64(acc[i][0], _mm512_popcnt_epi64(_mm512_xor_si512(x, w0)));
      acc[i][1] = _mm512_add_epi64(acc[i][1], _mm512_popcnt_epi64(_mm512_xor_si512(x, w1)));
    }
  }
  for (size_t i = 0; i < 4; i++) {
    for (size_t j = 0; j < 2; j++) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i * channels + j * 8), _mm512_cvtepi64_epi32(acc[i][j]));
    }
  }
}

}  // namespace

bool has_bare_loop() { return (cpu_features() & kAvx512Vpopcntdq) != 0; }

void bare_loop(const uint64_t* a, const uint64_t* w, int32_t* out, int pixels, int channels, int words) {
  for (int j = 0; j < channels; j += 16) {
    for (int i = 0; i < pixels; i += 4)
      tile(a + i * words, w + j * words, words, out + i * channels + j, size_t(channels));
  }
}

double bare_fmas(int rounds) {
  constexpr int kChains = 12;
  __m512 acc[kChains];
  for (int i = 0; i < kChains; i++) acc[i] = _mm512_set1_ps(float(i));
  const __m512 x = _mm512_set1_ps(0.5f), y = _mm512_set1_ps(0.25f);
  for (int r = 0; r < rounds; r++) {
    for (int k = 0; k < 2; k++) {
      for (int i = 0; i < kChains; i++) {
        acc[i] = _mm512_fmadd_ps(acc[i], x, y);
        __asm__ volatile("" : "+v"(acc[i]));
      }
    }
  }
  return 16.0 * 2 * kChains * rounds;
}

}  // namespace bitedge
#elif defined(__ARM_NEON) && defined(__aarch64__)
#include <arm_neon.h>

#include <algorithm>

namespace bitedge {
namespace {

// 4 pixels by 8 channels in sixteen registers: 3 operations for 128 products. A byte holds 31 counts of at most 8.
void tile(const uint64_t* a, const uint64_t* w, int words, int32_t* out, size_t channels) {
  uint64x2_t acc[4][4] = {};
  for (int begin = 0; begin < words; begin += 31) {
    uint8x16_t bytes[4][4] = {};
    for (int k = begin; k < std::min(begin + 31, words); k++) {
      uint64x2_t weights[4];
      for (int j = 0; j < 4; j++) weights[j] = vld1q_u64(w + k * 8 + 2 * j);
      for (int i = 0; i < 4; i++) {
        const uint64x2_t x = vdupq_n_u64(a[i * words + k]);
        for (int j = 0; j < 4; j++) {
          bytes[i][j] = vaddq_u8(bytes[i][j], vcntq_u8(vreinterpretq_u8_u64(veorq_u64(x, weights[j]))));
        }
      }
    }
    for (int i = 0; i < 4; i++) {
      for (int j = 0; j < 4; j++) acc[i][j] = vpadalq_u32(acc[i][j], vpaddlq_u16(vpaddlq_u8(bytes[i][j])));
    }
  }
  for (size_t i = 0; i < 4; i++) {
    for (size_t j = 0; j < 4; j++) vst1_s32(out + i * channels + j * 2, vreinterpret_s32_u32(vmovn_u64(acc[i][j])));
  }
}

}  // namespace

bool has_bare_loop() { return true; }

void bare_loop(const uint64_t* a, const uint64_t* w, int32_t* out, int pixels, int channels, int words) {
  for (int j = 0; j < channels; j += 8) {
    for (int i = 0; i < pixels; i += 4)
      tile(a + i * words, w + j * words, words, out + i * channels + j, size_t(channels));
  }
}

double bare_fmas(int rounds) {
  constexpr int kChains = 16;
  float32x4_t acc[kChains];
  for (int i = 0; i < kChains; i++) acc[i] = vdupq_n_f32(float(i));
  const float32x4_t x = vdupq_n_f32(0.5f), y = vdupq_n_f32(0.25f);
  for (int r = 0; r < rounds; r++) {
    for (int k = 0; k < 4; k++) {
      for (int i = 0; i < kChains; i++) {
        acc[i] = vfmaq_f32(y, acc[i], x);
        __asm__ volatile("" : "+w"(acc[i]));
      }
    }
  }
  return 4.0 * 4 * kChains * rounds;
}

}  // namespace bitedge
#else
namespace bitedge {

bool has_bare_loop() { return false; }
void bare_loop(const uint64_t*, const uint64_t*, int32_t*, int, int, int) {}
double bare_fmas(int) { return 0; }

}  // namespace bitedge
#endif
