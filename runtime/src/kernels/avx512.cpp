// AVX-512 (F, BW, DQ, VL), as from Skylake-X on.
#include "kernels/kernels.h"
#include "kernels/vector_avx512.h"
//
#include "kernels/epilogue.inl"
#include "kernels/fetch.inl"

namespace bitedge {
namespace {

constexpr int kFloatPixels = 6, kFloatBlocks = 4, kStreamBlocks = 16;
constexpr int kImagePixels = 4, kImageBlocks = 4;
constexpr int kStemSums = 30;
constexpr int kCarryPixels = 4, kLanes = 8;

using Words = __m512i;

inline Words zero() { return _mm512_setzero_si512(); }
inline Words load(const uint64_t* p) { return _mm512_load_si512(p); }
inline Words broadcast(uint64_t x) { return _mm512_set1_epi64(int64_t(x)); }
inline Words exclusive(Words a, Words b) { return _mm512_xor_si512(a, b); }
inline Words add(Words* sum, Words a, Words b) {
  const Words carry = _mm512_ternarylogic_epi64(*sum, a, b, 0xe8);  // majority
  *sum = _mm512_ternarylogic_epi64(*sum, a, b, 0x96);
  return carry;
}
// The majority of sum, a and b, where b = sum ^ a ^ (the new sum) is never formed.
inline Words add_pair(Words* sum, Words x0, Words x01, Words w0, Words w01) {
  const Words a = _mm512_xor_si512(x0, w0), next = _mm512_ternarylogic_epi64(*sum, x01, w01, 0x96);
  const Words carry = _mm512_ternarylogic_epi64(*sum, a, next, 0xd4);
  *sum = next;
  return carry;
}
inline Words count_bytes(Words x) {
  const __m512i low = _mm512_set1_epi8(15);
  const __m512i table = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
  const __m512i a = _mm512_shuffle_epi8(table, _mm512_and_si512(x, low));
  const __m512i b = _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi16(x, 4), low));
  return _mm512_add_epi8(a, b);
}
inline Words add_bytes(Words a, Words b) { return _mm512_add_epi8(a, b); }
inline Words fold(Words bytes) { return _mm512_sad_epu8(bytes, _mm512_setzero_si512()); }
inline Words add_lanes(Words a, Words b) { return _mm512_add_epi64(a, b); }
inline Words shift_lanes(Words a, int n) { return _mm512_slli_epi64(a, unsigned(n)); }
inline void store_counts(int32_t* to, Words x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi64_epi32(x));
}

// |Σ of two products| <= 510: no saturation.
inline I32x16 dot(I32x16 acc, uint32_t four, const int8_t* weights) {
  const __m512i two = _mm512_maddubs_epi16(_mm512_set1_epi32(int32_t(four)), _mm512_load_si512(weights));
  return _mm512_add_epi32(acc, _mm512_madd_epi16(two, _mm512_set1_epi16(1)));
}

}  // namespace
}  // namespace bitedge

#include "kernels/carry_save.inl"
#include "kernels/conv.inl"
#include "kernels/image.inl"
#include "kernels/lanes.inl"
#include "kernels/rows.inl"
#include "kernels/winograd.inl"

namespace bitedge {

const BinaryKernel kAvx512Binary = {
    "4x16", Grouping::kPairs, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, run_binary_conv, stream};
const ImageKernel kAvx512Image = {"4x64", 0, run_image_conv};
const FloatKernel kAvx512Float = {"6x64", run_float_conv, run_float_stream};
const LaneKernel kAvx512Lanes = {"6x16", run_lane_conv, spread_lanes};
const StemKernel kAvx512Stem = {"winograd 4x16", run_stem};
const RowKernels kAvx512Rows = {max_pool_float, max_pool_bits, avg_pool, adaptive_avg_pool, normalize,
                                layer_norm,     softmax,       row_sums, row_norm,          elementwise};

}  // namespace bitedge
