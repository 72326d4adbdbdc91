// AVX-512 with VPOPCNTDQ, binary convolutions of half words: sixteen channels of 32 bits fill a register. So 64
// channels already make a pair, 96 leave nothing empty, and twice as many pixels share the weights in registers.
#include "kernels/kernels.h"
#include "kernels/vector_avx512.h"
//
#include "kernels/epilogue.inl"
#include "kernels/fetch.inl"

namespace bitedge {
namespace {

constexpr int kWordsPixels = 14, kGroupsPixels = 8, kGroupWords = 2;

template <int kPixels, EpilogueKind kKind>
inline __attribute__((always_inline)) void words_tile(const BinaryConv& c, int32_t pixel, int32_t block);
template <int kPixels, EpilogueKind kKind>
inline __attribute__((always_inline)) void groups_tile(const BinaryConv& c, int32_t pixel, int32_t block, Fetch& fetch);

}  // namespace
}  // namespace bitedge

#include "kernels/binary.inl"

namespace bitedge {
namespace {

typedef uint32_t __attribute__((may_alias)) HalfWord;

inline __m512i add_count(__m512i acc, __m512i x) { return _mm512_add_epi32(acc, _mm512_popcnt_epi32(x)); }

template <int kPixels>
inline void windows(const BinaryConv& c, int32_t pixel, const HalfWord* (&in)[kPixels]) {
  const HalfWord* map = reinterpret_cast<const HalfWord*>(c.map);
  BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) in[i] = map + c.region.origin[pixel + i];
}

inline const HalfWord* weights_of(const BinaryConv& c, int32_t block, int group) {
  return reinterpret_cast<const HalfWord*>(c.weights) + size_t(block) * block_words(c, group);
}

template <int kPixels>
inline void add_words(const HalfWord* const (&in)[kPixels], const int32_t* step, int32_t steps, const HalfWord* w,
                      __m512i (&acc)[kPixels]) {
  for (int32_t s = 0; s < steps; s++, w += kBlock) {
    const __m512i weights = _mm512_load_si512(w);
    BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) {
      acc[i] = add_count(acc[i], _mm512_xor_si512(_mm512_set1_epi32(int32_t(in[i][step[s]])), weights));
    }
  }
}

// The full adders of avx512vpopcntdq.cpp for four pixels, x[0] to x[3], at half words `at` and `at` + 1. The order was
// found by trial of some 100,000 on Zen 4, where it takes 2.55 cycles a pixel: 2.5 is what five operations need at two
// per cycle, and stage after stage takes 2.6 to 2.9. m: the old bits are kept, s: the new bits, x: (x0 ^ w0), t: the
// carries, p and a: their population counts are added.
inline void add_four(__m512i* ones, __m512i* acc, const HalfWord* const* x, int64_t at, __m512i w0, __m512i w01) {
  constexpr size_t kRead = 1 << 16;  // more than is read: clang wants a number
#define BITEDGE_M(i, old) "vmovdqa64 %[ones" #i "], %%zmm" #old "\n\t"
#define BITEDGE_S(i) "vpternlogd $0x96, 4(%[x" #i "],%[at],4)%{1to16%}, %[w01], %[ones" #i "]\n\t"
#define BITEDGE_X(i, carry) "vpxord (%[x" #i "],%[at],4)%{1to16%}, %[w0], %%zmm" #carry "\n\t"
#define BITEDGE_T(i, old, carry) "vpternlogd $0xb2, %%zmm" #old ", %[ones" #i "], %%zmm" #carry "\n\t"
#define BITEDGE_P(carry) "vpopcntd %%zmm" #carry ", %%zmm" #carry "\n\t"
#define BITEDGE_A(i, carry) "vpaddd %%zmm" #carry ", %[acc" #i "], %[acc" #i "]\n\t"
  // clang-format off
  __asm__(BITEDGE_X(0, 28) BITEDGE_M(0, 24) BITEDGE_M(1, 25) BITEDGE_S(0) BITEDGE_S(1) BITEDGE_M(2, 26)
          BITEDGE_S(2) BITEDGE_M(3, 27) BITEDGE_S(3) BITEDGE_X(3, 31) BITEDGE_X(1, 29) BITEDGE_T(3, 27, 31)
          BITEDGE_T(0, 24, 28) BITEDGE_X(2, 30) BITEDGE_T(1, 25, 29) BITEDGE_T(2, 26, 30) BITEDGE_P(28) BITEDGE_P(30)
          BITEDGE_A(0, 28) BITEDGE_A(2, 30) BITEDGE_P(29) BITEDGE_P(31) BITEDGE_A(1, 29) BITEDGE_A(3, 31)
          // clang-format on
          : [ones0] "+&v"(ones[0]), [ones1] "+&v"(ones[1]), [ones2] "+&v"(ones[2]), [ones3] "+&v"(ones[3]),
            [acc0] "+&v"(acc[0]), [acc1] "+&v"(acc[1]), [acc2] "+&v"(acc[2]), [acc3] "+&v"(acc[3])
          : [x0] "r"(x[0]), [x1] "r"(x[1]), [x2] "r"(x[2]), [x3] "r"(x[3]), [at] "r"(at), [w0] "v"(w0), [w01] "v"(w01),
            "m"(*(const HalfWord(*)[kRead])x[0]), "m"(*(const HalfWord(*)[kRead])x[1]),
            "m"(*(const HalfWord(*)[kRead])x[2]), "m"(*(const HalfWord(*)[kRead])x[3])
          : "xmm24", "xmm25", "xmm26", "xmm27", "xmm28", "xmm29", "xmm30", "xmm31");
#undef BITEDGE_M
#undef BITEDGE_S
#undef BITEDGE_X
#undef BITEDGE_T
#undef BITEDGE_P
#undef BITEDGE_A
}

inline void add_pair(__m512i& ones, __m512i& acc, const HalfWord* x, __m512i w0, __m512i w01) {
  const __m512i first = _mm512_xor_si512(_mm512_set1_epi32(int32_t(x[0])), w0);
  const __m512i next = _mm512_ternarylogic_epi32(ones, _mm512_set1_epi32(int32_t(x[1])), w01, 0x96);
  acc = add_count(acc, _mm512_ternarylogic_epi32(ones, first, next, 0xd4));
  ones = next;
}

template <int kPixels, EpilogueKind kKind>
inline __attribute__((always_inline)) void words_tile(const BinaryConv& c, int32_t pixel, int32_t block) {
  const HalfWord* in[kPixels];
  windows<kPixels>(c, pixel, in);
  __m512i acc[kPixels];
  BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) acc[i] = _mm512_setzero_si512();
  add_words<kPixels>(in, c.region.step, c.singles, weights_of(c, block, 1), acc);
  Counts<kPixels, kKind> counts(c, pixel, block);
  BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) counts.put(i, acc[i]);
  counts.done();
}

template <int kPixels, bool kFetch>
inline __attribute__((always_inline)) const HalfWord* add_groups(const HalfWord* const (&in)[kPixels],
                                                                 const int32_t* step, int32_t steps, const HalfWord* w,
                                                                 __m512i (&ones)[kPixels], __m512i (&acc)[kPixels],
                                                                 Fetch& fetch) {
  for (int32_t s = 0; s < steps; s++, w += 2 * kBlock) {
    const __m512i w0 = _mm512_load_si512(w), w01 = _mm512_load_si512(w + kBlock);
    BITEDGE_UNROLL for (int i = 0; i + 4 <= kPixels; i += 4) add_four(ones + i, acc + i, in + i, step[s], w0, w01);
    BITEDGE_UNROLL for (int i = kPixels / 4 * 4; i < kPixels; i++) add_pair(ones[i], acc[i], in[i] + step[s], w0, w01);
    if constexpr (kFetch) fetch.step();
  }
  return w;
}

template <int kPixels, EpilogueKind kKind>
inline __attribute__((always_inline)) void groups_tile(const BinaryConv& c, int32_t pixel, int32_t block,
                                                       Fetch& fetch) {
  const HalfWord* in[kPixels];
  windows<kPixels>(c, pixel, in);
  __m512i acc[kPixels], ones[kPixels];
  BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) acc[i] = ones[i] = _mm512_setzero_si512();
  const HalfWord* w = weights_of(c, block, 2);
  w = fetch.left() ? add_groups<kPixels, true>(in, c.region.step, c.groups, w, ones, acc, fetch)
                   : add_groups<kPixels, false>(in, c.region.step, c.groups, w, ones, acc, fetch);
  BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) acc[i] = add_count(_mm512_add_epi32(acc[i], acc[i]), ones[i]);
  add_words<kPixels>(in, c.region.step + c.groups, c.singles, w, acc);
  Counts<kPixels, kKind> counts(c, pixel, block);
  BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) counts.put(i, acc[i]);
  counts.done();
}

}  // namespace

const BinaryKernel kAvx512VpopcntdqHalf = {
    "8x16", Grouping::kPairs, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, run_binary_conv, nullptr};

}  // namespace bitedge
