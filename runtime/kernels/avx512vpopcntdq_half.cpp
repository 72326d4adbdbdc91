// AVX-512 with VPOPCNTDQ, binary convolutions of half words: sixteen channels of 32 bits fill a register. So 64
// channels already make a pair, 96 leave nothing empty, and twice as many pixels share the weights in registers.
#include "kernels.h"
#include "vector_avx512.h"
//
#include "fetch.inl"
#include "finish.inl"

namespace bitedge {
namespace {

constexpr int kWordsPixels = 14, kGroupsPixels = 8, kGroupWords = 2;

template <int kPixels, Ending kEnding>
void words_tile(const BinaryConv& c, int32_t pixel, int32_t block);
template <int kPixels, Ending kEnding>
void groups_tile(const BinaryConv& c, int32_t pixel, int32_t block, Fetch& fetch);

}  // namespace
}  // namespace bitedge

#include "binary.inl"

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

// The full adders of avx512vpopcntdq.cpp, for two pixels `x` and `y`, in the same order.
inline void add_pairs(__m512i& ones_x, __m512i& acc_x, __m512i& ones_y, __m512i& acc_y, const HalfWord* x,
                      const HalfWord* y, __m512i w0, __m512i w01) {
  __m512i old_x, old_y, carry_x, carry_y;
  __asm__(
      "vmovdqa64 %[ones_x], %[old_x]\n\t"
      "vmovdqa64 %[ones_y], %[old_y]\n\t"
      "vpternlogd $0x96, %[x01]%{1to16%}, %[w01], %[ones_x]\n\t"
      "vpternlogd $0x96, %[y01]%{1to16%}, %[w01], %[ones_y]\n\t"
      "vpxord %[x0]%{1to16%}, %[w0], %[carry_x]\n\t"
      "vpxord %[y0]%{1to16%}, %[w0], %[carry_y]\n\t"
      "vpternlogd $0xb2, %[old_x], %[ones_x], %[carry_x]\n\t"
      "vpternlogd $0xb2, %[old_y], %[ones_y], %[carry_y]\n\t"
      "vpopcntd %[carry_x], %[carry_x]\n\t"
      "vpopcntd %[carry_y], %[carry_y]\n\t"
      "vpaddd %[carry_x], %[acc_x], %[acc_x]\n\t"
      "vpaddd %[carry_y], %[acc_y], %[acc_y]"
      : [ones_x] "+v"(ones_x), [acc_x] "+v"(acc_x), [ones_y] "+v"(ones_y), [acc_y] "+v"(acc_y), [old_x] "=&v"(old_x),
        [old_y] "=&v"(old_y), [carry_x] "=&v"(carry_x), [carry_y] "=&v"(carry_y)
      : [x0] "m"(x[0]), [x01] "m"(x[1]), [y0] "m"(y[0]), [y01] "m"(y[1]), [w0] "v"(w0), [w01] "v"(w01));
}

inline void add_pair(__m512i& ones, __m512i& acc, const HalfWord* x, __m512i w0, __m512i w01) {
  const __m512i first = _mm512_xor_si512(_mm512_set1_epi32(int32_t(x[0])), w0);
  const __m512i next = _mm512_ternarylogic_epi32(ones, _mm512_set1_epi32(int32_t(x[1])), w01, 0x96);
  acc = add_count(acc, _mm512_ternarylogic_epi32(ones, first, next, 0xd4));
  ones = next;
}

template <int kPixels, Ending kEnding>
void words_tile(const BinaryConv& c, int32_t pixel, int32_t block) {
  const HalfWord* in[kPixels];
  windows<kPixels>(c, pixel, in);
  __m512i acc[kPixels];
  BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) acc[i] = _mm512_setzero_si512();
  add_words<kPixels>(in, c.region.step, c.singles, weights_of(c, block, 1), acc);
  const Counts<kPixels, kEnding> counts(c, pixel, block);
  BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) counts.put(i, acc[i]);
}

template <int kPixels, bool kFetch>
inline __attribute__((always_inline)) const HalfWord* add_groups(const HalfWord* const (&in)[kPixels],
                                                                 const int32_t* step, int32_t steps, const HalfWord* w,
                                                                 __m512i (&ones)[kPixels], __m512i (&acc)[kPixels],
                                                                 Fetch& fetch) {
  for (int32_t s = 0; s < steps; s++, w += 2 * kBlock) {
    const __m512i w0 = _mm512_load_si512(w), w01 = _mm512_load_si512(w + kBlock);
    BITEDGE_UNROLL for (int i = 0; i + 1 < kPixels; i += 2) {
      add_pairs(ones[i], acc[i], ones[i + 1], acc[i + 1], in[i] + step[s], in[i + 1] + step[s], w0, w01);
    }
    if constexpr (kPixels % 2) add_pair(ones[kPixels - 1], acc[kPixels - 1], in[kPixels - 1] + step[s], w0, w01);
    if constexpr (kFetch) fetch.step();
  }
  return w;
}

template <int kPixels, Ending kEnding>
void groups_tile(const BinaryConv& c, int32_t pixel, int32_t block, Fetch& fetch) {
  const HalfWord* in[kPixels];
  windows<kPixels>(c, pixel, in);
  __m512i acc[kPixels], ones[kPixels];
  BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) acc[i] = ones[i] = _mm512_setzero_si512();
  const HalfWord* w = weights_of(c, block, 2);
  w = fetch.left() ? add_groups<kPixels, true>(in, c.region.step, c.groups, w, ones, acc, fetch)
                   : add_groups<kPixels, false>(in, c.region.step, c.groups, w, ones, acc, fetch);
  BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) acc[i] = add_count(_mm512_add_epi32(acc[i], acc[i]), ones[i]);
  add_words<kPixels>(in, c.region.step + c.groups, c.singles, w, acc);
  const Counts<kPixels, kEnding> counts(c, pixel, block);
  BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) counts.put(i, acc[i]);
}

}  // namespace

const BinaryKernel kAvx512VpopcntdqHalf = {
    "8x16", Grouping::kPairs, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, run_binary_conv, nullptr};

}  // namespace bitedge
