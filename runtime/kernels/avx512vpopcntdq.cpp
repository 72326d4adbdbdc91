// AVX-512 with VPOPCNTDQ and VNNI, as from Ice Lake and Zen 4 on: binary and image convolutions. Everything else is
// avx512.cpp's.
#include "kernels.h"
#include "vector_avx512.h"
//
#include "finish.inl"

namespace bitedge {
namespace {

constexpr int kWordsPixels = 7, kGroupsPixels = 4, kGroupWords = 2;
constexpr int kImagePixels = 4, kImageBlocks = 4;

// The even channels of a block are counted in one register, the odd ones in another, each in the low half of 64 bits.
inline I16 interleave(__m512i even, __m512i odd) { return _mm512_mask_shuffle_epi32(even, 0xaaaa, odd, _MM_PERM_CCAA); }

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

template <int kPixels, Ending kEnding>
void words_tile(const BinaryConv& c, int32_t pixel, int32_t block);
template <int kPixels, Ending kEnding>
void groups_tile(const BinaryConv& c, int32_t pixel, int32_t block);

}  // namespace
}  // namespace bitedge

#include "binary.inl"

namespace bitedge {
namespace {

template <int kPixels, Ending kEnding>
void words_tile(const BinaryConv& c, int32_t pixel, int32_t block) {
  const uint64_t* in[kPixels];
  windows<kPixels>(c, pixel, in);
  __m512i even[kPixels], odd[kPixels];
  BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) even[i] = odd[i] = _mm512_setzero_si512();
  add_words<kPixels>(in, c.region.step, c.singles, c.weights + size_t(block) * block_words(c, 1), even, odd);
  BITEDGE_UNROLL for (int i = 0; i < kPixels; i++)
      finish_count<kEnding>(c, pixel + i, block, interleave(even[i], odd[i]));
}

// A full adder over a running bit of weight one, `ones`, and the pair of words (x0 ^ w0) and (x1 ^ w1), of which the
// second is never formed: the new bit is ones ^ (x0 ^ x1) ^ (w0 ^ w1), and the carry, of weight two, is the majority of
// the three, a function of ones, (x0 ^ w0) and the new bit. Five operations for 1,024 products where single words take
// six. In assembly because the order decides: Zen 4 binds operations to pipes as they come, and other orders lose a
// sixth.
inline void add_pair(__m512i& ones, __m512i& twos, __m512i x0, __m512i x01, __m512i w0, __m512i w01) {
  __m512i old, carry;
  __asm__(
      "vmovdqa64 %[ones], %[old]\n\t"
      "vpternlogq $0x96, %[w01], %[x01], %[ones]\n\t"
      "vpxorq %[x0], %[w0], %[carry]\n\t"
      "vpternlogq $0xb2, %[old], %[ones], %[carry]\n\t"
      "vpopcntq %[carry], %[carry]\n\t"
      "vpaddq %[carry], %[twos], %[twos]"
      : [ones] "+v"(ones), [twos] "+v"(twos), [old] "=&v"(old), [carry] "=&v"(carry)
      : [x0] "v"(x0), [x01] "v"(x01), [w0] "v"(w0), [w01] "v"(w01));
}

template <int kPixels, Ending kEnding>
void groups_tile(const BinaryConv& c, int32_t pixel, int32_t block) {
  const uint64_t* in[kPixels];
  windows<kPixels>(c, pixel, in);
  __m512i even[kPixels], odd[kPixels], ones_even[kPixels], ones_odd[kPixels];
  BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) {
    even[i] = odd[i] = ones_even[i] = ones_odd[i] = _mm512_setzero_si512();
  }
  const uint64_t* w = c.weights + size_t(block) * block_words(c, 2);
  for (int32_t s = 0; s < c.groups; s++, w += 2 * kBlock) {
    const __m512i w0_even = _mm512_load_si512(w), w0_odd = _mm512_load_si512(w + 8);
    const __m512i w01_even = _mm512_load_si512(w + 16), w01_odd = _mm512_load_si512(w + 24);
    BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) {
      const uint64_t* x = in[i] + c.region.step[s];
      const __m512i x0 = _mm512_set1_epi64(int64_t(x[0])), x01 = _mm512_set1_epi64(int64_t(x[1]));
      add_pair(ones_even[i], even[i], x0, x01, w0_even, w01_even);
      add_pair(ones_odd[i], odd[i], x0, x01, w0_odd, w01_odd);
    }
  }
  BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) {
    even[i] = add_count(_mm512_add_epi64(even[i], even[i]), ones_even[i]);
    odd[i] = add_count(_mm512_add_epi64(odd[i], odd[i]), ones_odd[i]);
  }
  add_words<kPixels>(in, c.region.step + c.groups, c.singles, w, even, odd);
  BITEDGE_UNROLL for (int i = 0; i < kPixels; i++)
      finish_count<kEnding>(c, pixel + i, block, interleave(even[i], odd[i]));
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
    finish_count<Ending::kAny>(c, c.region.pixel_begin, block, interleave(all_even, all_odd));
  }
}

inline I16 dot(I16 acc, uint32_t four, const int8_t* weights) {
  return _mm512_dpbusd_epi32(acc, _mm512_set1_epi32(int32_t(four)), _mm512_load_si512(weights));
}

}  // namespace
}  // namespace bitedge

#include "image.inl"

namespace bitedge {

const BinaryKernel kAvx512VpopcntdqBinary = {
    "4x16", Grouping::kPairs, {0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15}, run_binary_conv, stream};
const ImageKernel kAvx512VnniImage = {"4x64", 0, run_image_conv};

}  // namespace bitedge
