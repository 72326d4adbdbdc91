// AVX-512 with VPOPCNTDQ and VNNI, as from Ice Lake and Zen 4 on: dense layers and grouped convolutions of bits, and
// image convolutions. Other convolutions of bits are avx512vpopcntdq_half.cpp's, everything else is avx512.cpp's.
#include "kernels/kernels.h"
#include "kernels/vector_avx512.h"
//
#include "kernels/epilogue.inl"
#include "kernels/fetch.inl"

namespace bitedge {
namespace {

constexpr int kWordsPixels = 7, kGroupsPixels = 4, kGroupWords = 2;
constexpr int kImagePixels = 4, kImageBlocks = 4;

// The even channels of a block are counted in one register, the odd ones in another, each in the low half of 64 bits.
inline I32x16 interleave(__m512i even, __m512i odd) {
  return _mm512_mask_shuffle_epi32(even, 0xaaaa, odd, _MM_PERM_CCAA);
}

inline __m512i add_count(__m512i acc, __m512i x) { return _mm512_add_epi64(acc, _mm512_popcnt_epi64(x)); }

// Adds the population counts of `steps` single words.
template <int kPixels>
inline void add_words(const uint64_t* const (&in)[kPixels], const int32_t* step, int32_t steps, const uint64_t* w,
                      __m512i (&even)[kPixels], __m512i (&odd)[kPixels]) {
  for (int32_t s = 0; s < steps; s++, w += kBlock) {
    const __m512i w_even = _mm512_load_si512(w), w_odd = _mm512_load_si512(w + 8);
    BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) {
      const __m512i x = _mm512_set1_epi64(int64_t(in[i][step[s]]));
      even[i] = add_count(even[i], _mm512_xor_si512(x, w_even));
      odd[i] = add_count(odd[i], _mm512_xor_si512(x, w_odd));
    }
  }
}

template <int kPixels>
inline void windows(const BinaryConv& c, int32_t pixel, const uint64_t* (&in)[kPixels]) {
  BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) in[i] = c.map + c.region.origin[pixel + i];
}

template <int kPixels, EpilogueKind kKind>
void words_tile(const BinaryConv& c, int32_t pixel, int32_t block);
template <int kPixels, EpilogueKind kKind>
void groups_tile(const BinaryConv& c, int32_t pixel, int32_t block, Fetch& fetch);

}  // namespace
}  // namespace bitedge

#include "kernels/binary.inl"

namespace bitedge {
namespace {

template <int kPixels, EpilogueKind kKind>
void words_tile(const BinaryConv& c, int32_t pixel, int32_t block) {
  const uint64_t* in[kPixels];
  windows<kPixels>(c, pixel, in);
  __m512i even[kPixels], odd[kPixels];
  BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) even[i] = odd[i] = _mm512_setzero_si512();
  add_words<kPixels>(in, c.region.step, c.singles, c.weights + size_t(block) * block_words(c, 1), even, odd);
  Counts<kPixels, kKind> counts(c, pixel, block);
  BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) counts.put(i, interleave(even[i], odd[i]));
  counts.done();
}

// Full adders for the two halves of a block, over a running bit of weight one, `ones`, and the words (x0 ^ w0) and
// (x1 ^ w1), of which the second is never formed: the new bit is ones ^ (x0 ^ x1) ^ (w0 ^ w1), and the carry, of weight
// two, is the majority of the three, a function of ones, (x0 ^ w0) and the new bit. Five operations for 1,024 products
// where single words take six. `x` holds x0 and x0 ^ x1; `w` holds w0 of both halves, then w0 ^ w1.
// In assembly because the order decides: Zen 4 binds operations to pipes as they come, and other orders lose a tenth.
inline void add_pairs(__m512i& ones_even, __m512i& even, __m512i& ones_odd, __m512i& odd, const uint64_t* x,
                      const __m512i (&w)[4]) {
  __m512i old_even, old_odd, carry_even, carry_odd;
  __asm__(
      "vmovdqa64 %[ones_even], %[old_even]\n\t"
      "vmovdqa64 %[ones_odd], %[old_odd]\n\t"
      "vpternlogq $0x96, %[x01]%{1to8%}, %[w2], %[ones_even]\n\t"
      "vpternlogq $0x96, %[x01]%{1to8%}, %[w3], %[ones_odd]\n\t"
      "vpxorq %[x0]%{1to8%}, %[w0], %[carry_even]\n\t"
      "vpxorq %[x0]%{1to8%}, %[w1], %[carry_odd]\n\t"
      "vpternlogq $0xb2, %[old_even], %[ones_even], %[carry_even]\n\t"
      "vpternlogq $0xb2, %[old_odd], %[ones_odd], %[carry_odd]\n\t"
      "vpopcntq %[carry_even], %[carry_even]\n\t"
      "vpopcntq %[carry_odd], %[carry_odd]\n\t"
      "vpaddq %[carry_even], %[even], %[even]\n\t"
      "vpaddq %[carry_odd], %[odd], %[odd]"
      : [ones_even] "+&v"(ones_even), [even] "+&v"(even), [ones_odd] "+&v"(ones_odd), [odd] "+&v"(odd),
        [old_even] "=&v"(old_even), [old_odd] "=&v"(old_odd), [carry_even] "=&v"(carry_even),
        [carry_odd] "=&v"(carry_odd)
      : [x0] "m"(x[0]), [x01] "m"(x[1]), [w0] "v"(w[0]), [w1] "v"(w[1]), [w2] "v"(w[2]), [w3] "v"(w[3]));
}

template <int kPixels, EpilogueKind kKind>
void groups_tile(const BinaryConv& c, int32_t pixel, int32_t block, Fetch& fetch) {
  const uint64_t* in[kPixels];
  windows<kPixels>(c, pixel, in);
  __m512i even[kPixels], odd[kPixels], ones_even[kPixels], ones_odd[kPixels];
  BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) {
    even[i] = odd[i] = ones_even[i] = ones_odd[i] = _mm512_setzero_si512();
  }
  const uint64_t* w = c.weights + size_t(block) * block_words(c, 2);
  for (int32_t s = 0; s < c.groups; s++, w += 2 * kBlock) {
    const __m512i weights[4] = {_mm512_load_si512(w), _mm512_load_si512(w + 8), _mm512_load_si512(w + 16),
                                _mm512_load_si512(w + 24)};
    BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) {
      const uint64_t* x = in[i] + c.region.step[s];
      add_pairs(ones_even[i], even[i], ones_odd[i], odd[i], x, weights);
    }
  }
  BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) {
    even[i] = add_count(_mm512_add_epi64(even[i], even[i]), ones_even[i]);
    odd[i] = add_count(_mm512_add_epi64(odd[i], odd[i]), ones_odd[i]);
  }
  add_words<kPixels>(in, c.region.step + c.groups, c.singles, w, even, odd);
  Counts<kPixels, kKind> counts(c, pixel, block);
  BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) counts.put(i, interleave(even[i], odd[i]));
  counts.done();
  fetch.turn();
}

// One pixel: the weights pass once, in one stream, so memory is the limit; four words at a time hide the latencies.
void stream(const BinaryConv& c) {
  constexpr int kDepth = 4;
  const uint64_t* in = c.map + c.region.origin[c.region.pixel_begin];
  for (int32_t block = c.region.block_begin; block < c.region.block_end; block++) {
    const uint64_t* w = c.weights + size_t(block) * block_words(c, 1);
    __m512i even[kDepth], odd[kDepth];
    BITEDGE_UNROLL for (int i = 0; i < kDepth; i++) even[i] = odd[i] = _mm512_setzero_si512();
    int32_t s = 0;
    for (; s + kDepth <= c.singles; s += kDepth, w += kDepth * kBlock) {
      BITEDGE_UNROLL for (int i = 0; i < kDepth; i++) {
        const __m512i x = _mm512_set1_epi64(int64_t(in[c.region.step[s + i]]));
        even[i] = add_count(even[i], _mm512_xor_si512(x, _mm512_load_si512(w + i * kBlock)));
        odd[i] = add_count(odd[i], _mm512_xor_si512(x, _mm512_load_si512(w + i * kBlock + 8)));
      }
    }
    for (; s < c.singles; s++, w += kBlock) {
      const __m512i x = _mm512_set1_epi64(int64_t(in[c.region.step[s]]));
      even[0] = add_count(even[0], _mm512_xor_si512(x, _mm512_load_si512(w)));
      odd[0] = add_count(odd[0], _mm512_xor_si512(x, _mm512_load_si512(w + 8)));
    }
    const __m512i all_even = _mm512_add_epi64(_mm512_add_epi64(even[0], even[1]), _mm512_add_epi64(even[2], even[3]));
    const __m512i all_odd = _mm512_add_epi64(_mm512_add_epi64(odd[0], odd[1]), _mm512_add_epi64(odd[2], odd[3]));
    Counts<1, EpilogueKind::kSteps> counts(c, c.region.pixel_begin, block);
    counts.put(0, interleave(all_even, all_odd));
    counts.done();
  }
}

inline I32x16 dot(I32x16 acc, uint32_t four, const int8_t* weights) {
  return _mm512_dpbusd_epi32(acc, _mm512_set1_epi32(int32_t(four)), _mm512_load_si512(weights));
}

}  // namespace
}  // namespace bitedge

#include "kernels/image.inl"

namespace bitedge {

const BinaryKernel kAvx512VpopcntdqBinary = {
    "4x16", Grouping::kPairs, {0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15}, run_binary_conv, stream};
const ImageKernel kAvx512VnniImage = {"4x64", 0, run_image_conv};

}  // namespace bitedge
