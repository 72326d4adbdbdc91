/* Binary dot products: xor, then the number of ones in n words, for four outputs whose words are interleaved.
 *
 * With a popcount instruction (RISC-V Zbb, x86) it is counted word by word. Everywhere else, Armv8.1-M's vectors
 * included (they have no popcount), carry-save adders bring eight words down to one of weight 8 and three running words
 * of weight 1, 2 and 4: five logical instructions per word. A lane is one output: a 32-bit word, or four of them in a
 * vector.
 */
#if defined(__ARM_FEATURE_MVE) && !defined(BITEDGE_PORTABLE)
#include <arm_mve.h>
typedef uint32x4_t bitedge_lane;
#define BITEDGE_LANES 4
#define BITEDGE_SPREAD(word) vdupq_n_u32(word)
#define BITEDGE_LOAD(words) vldrwq_u32(words)
#else
typedef uint32_t bitedge_lane;
#define BITEDGE_LANES 1
#define BITEDGE_SPREAD(word) (word)
#define BITEDGE_LOAD(words) (*(words))
#endif

#define BITEDGE_XOR(i)                                                                           \
  (mask ? (BITEDGE_SPREAD(patch[i]) ^ BITEDGE_LOAD(weights + 4 * (i))) & BITEDGE_SPREAD(mask[i]) \
        : (BITEDGE_SPREAD(patch[i]) ^ BITEDGE_LOAD(weights + 4 * (i))))

/* Add three bits in every position: `low` is the sum, `high` the carry. */
#define BITEDGE_ADD(high, low, a, b, c)              \
  do {                                               \
    const bitedge_lane a_ = (a), b_ = (b), c_ = (c); \
    const bitedge_lane half_ = a_ ^ b_;              \
    high = (a_ & b_) | (half_ & c_);                 \
    low = half_ ^ c_;                                \
  } while (0)

/* The number of ones in each group of four bits: 0 to 4. */
BITEDGE_INLINE bitedge_lane bitedge_ones_by_4(bitedge_lane x, const bitedge_lane by_1, const bitedge_lane by_2) {
  x -= (x >> 1) & by_1;
  return (x & by_2) + ((x >> 2) & by_2);
}

/* From groups of four bits that hold 0 to 7, or 0 to 15, to bytes. */
BITEDGE_INLINE bitedge_lane bitedge_small_by_8(bitedge_lane x, const bitedge_lane by_4) {
  return (x + (x >> 4)) & by_4;
}

BITEDGE_INLINE bitedge_lane bitedge_by_8(bitedge_lane x, const bitedge_lane by_4) {
  return (x & by_4) + ((x >> 4) & by_4);
}

/* A mask in a register can be shifted and applied in one instruction of Thumb-2, one in the instruction cannot. */
#if defined(__thumb2__) && BITEDGE_LANES == 1 && defined(__GNUC__)
#define BITEDGE_HOLD(mask) __asm__("" : "+r"(mask))
#else
#define BITEDGE_HOLD(mask) (void)0
#endif

/* The sum of the four bytes. */
BITEDGE_INLINE bitedge_lane bitedge_sum_bytes(bitedge_lane x) {
#if defined(__ARM_FEATURE_DSP) && BITEDGE_LANES == 1 && defined(__GNUC__) && !defined(BITEDGE_PORTABLE)
  uint32_t sum;
  __asm__("usad8 %0, %1, %2" : "=r"(sum) : "r"(x), "r"(0));
  return sum;
#else
  x = (x & 0x00ff00ffu) + ((x >> 8) & 0x00ff00ffu);
  return (x + (x >> 16)) & 0xffffu;
#endif
}

/* The number of ones of n words; n is a constant wherever this is inlined. */
BITEDGE_INLINE bitedge_lane bitedge_count(const bitedge_word* patch, const bitedge_word* mask,
                                          const bitedge_word* weights, const int32_t n) {
  bitedge_lane ones = BITEDGE_SPREAD(0), twos = ones, fours = ones, eights = ones, total = ones;
  bitedge_lane by_1 = BITEDGE_SPREAD(0x55555555u), by_2 = BITEDGE_SPREAD(0x33333333u);
  bitedge_lane by_4 = BITEDGE_SPREAD(0x0f0f0f0fu);
  bitedge_lane a, b, c, d;
  int32_t blocks = n / 8, left;
  /* n mod 8 words are what `ones`, `twos` and `fours` can hold. */
  if (n & 1) {
    ones = BITEDGE_XOR(0);
    patch += 1, mask = mask ? mask + 1 : 0, weights += 4;
  }
  if (n & 2) {
    BITEDGE_ADD(twos, ones, ones, BITEDGE_XOR(0), BITEDGE_XOR(1));
    patch += 2, mask = mask ? mask + 2 : 0, weights += 8;
  }
  if (n & 4) {
    BITEDGE_ADD(a, ones, ones, BITEDGE_XOR(0), BITEDGE_XOR(1));
    BITEDGE_ADD(b, ones, ones, BITEDGE_XOR(2), BITEDGE_XOR(3));
    BITEDGE_ADD(fours, twos, twos, a, b);
    patch += 4, mask = mask ? mask + 4 : 0, weights += 16;
  }
  while (blocks > 0) {
    /* A byte of `eights` grows by at most 8 per block. */
    left = blocks < 31 ? blocks : 31;
    blocks -= left;
    for (; left > 0; left--) {
      BITEDGE_ADD(a, ones, ones, BITEDGE_XOR(0), BITEDGE_XOR(1));
      BITEDGE_ADD(b, ones, ones, BITEDGE_XOR(2), BITEDGE_XOR(3));
      BITEDGE_ADD(c, twos, twos, a, b);
      BITEDGE_ADD(a, ones, ones, BITEDGE_XOR(4), BITEDGE_XOR(5));
      BITEDGE_ADD(b, ones, ones, BITEDGE_XOR(6), BITEDGE_XOR(7));
      BITEDGE_ADD(d, twos, twos, a, b);
      BITEDGE_ADD(a, fours, fours, c, d);
      if (n < 16) {
        eights = a;
      } else {
        eights += bitedge_small_by_8(bitedge_ones_by_4(a, by_1, by_2), by_4);
      }
      patch += 8, mask = mask ? mask + 8 : 0, weights += 32;
    }
    if (n >= 32) {
      total += bitedge_sum_bytes(eights) * 8;
      eights = BITEDGE_SPREAD(0);
    }
  }
  /* 4 + 2 * 4 fits four bits; 24 + 4 * 24 fits a byte, and with fewer than 32 words so does 8 * 24 on top. */
  BITEDGE_HOLD(by_1);
  BITEDGE_HOLD(by_2);
  BITEDGE_HOLD(by_4);
  a = bitedge_by_8(bitedge_ones_by_4(ones, by_1, by_2) + bitedge_ones_by_4(twos, by_1, by_2) * 2, by_4);
  if (n >= 8 && n < 16) {
    b = bitedge_ones_by_4(fours, by_1, by_2) + bitedge_ones_by_4(eights, by_1, by_2) * 2;
    a += bitedge_by_8(b, by_4) * 4;
  } else if (n >= 4) {
    a += bitedge_small_by_8(bitedge_ones_by_4(fours, by_1, by_2), by_4) * 4;
  }
  if (n >= 16 && n < 32) a += eights * 8;
  return total + bitedge_sum_bytes(a);
}

#if (defined(__riscv_zbb) || defined(__POPCNT__)) && !defined(BITEDGE_PORTABLE)
/* Popcount by instruction. */
BITEDGE_INLINE void bitedge_dots_of(const bitedge_word* patch, const bitedge_word* mask, const bitedge_word* weights,
                                    int32_t quads, int32_t taps, int32_t* sums, const int32_t n) {
  int32_t i;
  for (; quads > 0; quads--, weights += 4 * n, sums += 4) {
    int32_t a = 0, b = 0, c = 0, d = 0;
    BITEDGE_UNROLL
    for (i = 0; i < n; i++) {
      const uint32_t word = patch[i], keep = mask ? mask[i] : 0xffffffffu;
      a += __builtin_popcount((word ^ weights[4 * i]) & keep);
      b += __builtin_popcount((word ^ weights[4 * i + 1]) & keep);
      c += __builtin_popcount((word ^ weights[4 * i + 2]) & keep);
      d += __builtin_popcount((word ^ weights[4 * i + 3]) & keep);
    }
    sums[0] = taps - 2 * a;
    sums[1] = taps - 2 * b;
    sums[2] = taps - 2 * c;
    sums[3] = taps - 2 * d;
  }
}
#elif BITEDGE_LANES == 4
BITEDGE_INLINE void bitedge_dots_of(const bitedge_word* patch, const bitedge_word* mask, const bitedge_word* weights,
                                    int32_t quads, int32_t taps, int32_t* sums, const int32_t n) {
  for (; quads > 0; quads--, weights += 4 * n, sums += 4) {
    vstrwq_s32(sums, vdupq_n_s32(taps) - (int32x4_t)(bitedge_count(patch, mask, weights, n) * 2));
  }
}
#else
BITEDGE_INLINE void bitedge_dots_of(const bitedge_word* patch, const bitedge_word* mask, const bitedge_word* weights,
                                    int32_t quads, int32_t taps, int32_t* sums, const int32_t n) {
  int32_t lane;
  for (; quads > 0; quads--, weights += 4 * (n - 1)) {
    for (lane = 0; lane < 4; lane++) *sums++ = taps - 2 * (int32_t)bitedge_count(patch, mask, weights++, n);
  }
}
#endif

/* One function for each length that the network has. */
#define BITEDGE_DOTS(n)                                                                                   \
  extern bitedge_dots bitedge_dots_##n;                                                                   \
  void bitedge_dots_##n(const bitedge_word* patch, const bitedge_word* mask, const bitedge_word* weights, \
                        int32_t quads, int32_t taps, int32_t* sums) {                                     \
    (void)mask;                                                                                           \
    bitedge_dots_of(patch, 0, weights, quads, taps, sums, n);                                             \
  }
#define BITEDGE_EDGE_DOTS(n)                                                                                   \
  extern bitedge_dots bitedge_edge_dots_##n;                                                                   \
  void bitedge_edge_dots_##n(const bitedge_word* patch, const bitedge_word* mask, const bitedge_word* weights, \
                             int32_t quads, int32_t taps, int32_t* sums) {                                     \
    bitedge_dots_of(patch, mask, weights, quads, taps, sums, n);                                               \
  }
