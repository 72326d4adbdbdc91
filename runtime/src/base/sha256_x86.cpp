// SHA-256 by Intel's SHA extensions; compiled with -msha -msse4.1.
#include "base/sha256_compress.h"

#if defined(__SHA__) && defined(__SSE4_1__)
#include <immintrin.h>

namespace bitedge {
namespace {

// The instructions keep the state as two registers, (a, b, e, f) and (c, d, g, h) from high to low, and do two rounds
// each. Four words of the schedule are made at a time from the sixteen before them.
void compress(uint32_t* state, const uint8_t* blocks, size_t count) {
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  const auto s = [&](int i) { return static_cast<int>(state[i]); };
  __m128i abef = _mm_set_epi32(s(0), s(1), s(4), s(5)), cdgh = _mm_set_epi32(s(2), s(3), s(6), s(7));
  for (; count > 0; --count, blocks += 64) {
    const __m128i first = abef, second = cdgh;
    __m128i w[4];
    for (int i = 0; i < 16; ++i) {
      __m128i& word = w[i & 3];
      if (i < 4) {
        word = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(blocks) + i), swap);
      } else {
        const __m128i seventh = _mm_alignr_epi8(w[(i + 3) & 3], w[(i + 2) & 3], 4);
        word = _mm_add_epi32(_mm_sha256msg1_epu32(word, w[(i + 1) & 3]), seventh);
        word = _mm_sha256msg2_epu32(word, w[(i + 3) & 3]);
      }
      const __m128i constants = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kSha256Round) + i);
      const __m128i sum = _mm_add_epi32(word, constants);
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
    }
    abef = _mm_add_epi32(abef, first);
    cdgh = _mm_add_epi32(cdgh, second);
  }
  uint32_t feba[4], hgdc[4];
  _mm_storeu_si128(reinterpret_cast<__m128i*>(feba), abef);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(hgdc), cdgh);
  const uint32_t after[8] = {feba[3], feba[2], hgdc[3], hgdc[2], feba[1], feba[0], hgdc[1], hgdc[0]};
  for (int i = 0; i < 8; ++i) state[i] = after[i];
}

}  // namespace

extern const Sha256Compress kSha256X86 = compress;

}  // namespace bitedge
#else
namespace bitedge {
extern const Sha256Compress kSha256X86 = nullptr;
}
#endif
