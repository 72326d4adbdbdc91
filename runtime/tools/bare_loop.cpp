#include "bare_loop.h"

#include "src/cpu.h"

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

}  // namespace bitedge
#else
namespace bitedge {

bool has_bare_loop() { return false; }
void bare_loop(const uint64_t*, const uint64_t*, int32_t*, int, int, int) {}

}  // namespace bitedge
#endif
