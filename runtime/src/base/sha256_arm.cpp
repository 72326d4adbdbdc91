// SHA-256 by Armv8's cryptography extension; compiled with -march=armv8-a+crypto.
#include "base/sha256_compress.h"

#if defined(__aarch64__) && (defined(__ARM_FEATURE_CRYPTO) || defined(__ARM_FEATURE_SHA2))
#include <arm_neon.h>

namespace bitedge {
namespace {

// Four rounds at a time on (a, b, c, d) and (e, f, g, h); four words of the schedule from the sixteen before them.
void compress(uint32_t* state, const uint8_t* blocks, size_t count) {
  uint32x4_t abcd = vld1q_u32(state), efgh = vld1q_u32(state + 4);
  for (; count > 0; --count, blocks += 64) {
    const uint32x4_t first = abcd, second = efgh;
    uint32x4_t w[4];
    for (int i = 0; i < 16; ++i) {
      uint32x4_t& word = w[i & 3];
      if (i < 4) {
        word = vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(blocks + 16 * i)));
      } else {
        word = vsha256su1q_u32(vsha256su0q_u32(word, w[(i + 1) & 3]), w[(i + 2) & 3], w[(i + 3) & 3]);
      }
      const uint32x4_t sum = vaddq_u32(word, vld1q_u32(kSha256Round + 4 * i)), before = abcd;
      abcd = vsha256hq_u32(abcd, efgh, sum);
      efgh = vsha256h2q_u32(efgh, before, sum);
    }
    abcd = vaddq_u32(abcd, first);
    efgh = vaddq_u32(efgh, second);
  }
  vst1q_u32(state, abcd);
  vst1q_u32(state + 4, efgh);
}

}  // namespace

extern const Sha256Compress kSha256Arm = compress;

}  // namespace bitedge
#else
namespace bitedge {
extern const Sha256Compress kSha256Arm = nullptr;
}
#endif
