// AVX2 with FMA, as from Haswell and Zen on.
#include "kernels/kernels.h"
#include "kernels/vector_avx2.h"
//
#include "kernels/epilogue.inl"
#include "kernels/fetch.inl"

namespace bitedge {
namespace {

constexpr int kFloatPixels = 6, kFloatBlocks = 1, kStreamBlocks = 4;
constexpr int kImagePixels = 4, kImageBlocks = 1;
constexpr int kStemSums = 7;
constexpr int kCarryPixels = 2, kLanes = 4;

using Words = __m256i;

inline Words zero() { return _mm256_setzero_si256(); }
inline Words load(const uint64_t* p) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(p)); }
inline Words broadcast(uint64_t x) { return _mm256_set1_epi64x(int64_t(x)); }
inline Words exclusive(Words a, Words b) { return _mm256_xor_si256(a, b); }
// Of three bits, the carry is the first of them where it equals the second, else the third.
inline Words majority(Words first, Words differs, Words third) {
  return _mm256_xor_si256(first, _mm256_and_si256(differs, _mm256_xor_si256(first, third)));
}
inline Words add(Words* sum, Words a, Words b) {
  const Words differs = _mm256_xor_si256(a, b), carry = majority(a, differs, *sum);
  *sum = _mm256_xor_si256(*sum, differs);
  return carry;
}
inline Words add_pair(Words* sum, Words x0, Words x01, Words w0, Words w01) {
  const Words differs = _mm256_xor_si256(x01, w01), carry = majority(_mm256_xor_si256(x0, w0), differs, *sum);
  *sum = _mm256_xor_si256(*sum, differs);
  return carry;
}
inline Words count_bytes(Words x) {
  const __m256i table =
      _mm256_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4, 0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4);
  const __m256i low = _mm256_set1_epi8(15);
  const __m256i a = _mm256_shuffle_epi8(table, _mm256_and_si256(x, low));
  const __m256i b = _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(x, 4), low));
  return _mm256_add_epi8(a, b);
}
inline Words add_bytes(Words a, Words b) { return _mm256_add_epi8(a, b); }
inline Words fold(Words bytes) { return _mm256_sad_epu8(bytes, _mm256_setzero_si256()); }
inline Words add_lanes(Words a, Words b) { return _mm256_add_epi64(a, b); }
inline Words shift_lanes(Words a, int n) { return _mm256_slli_epi64(a, n); }
inline void store_counts(int32_t* to, Words x) {
  const __m256i low = _mm256_permutevar8x32_epi32(x, _mm256_setr_epi32(0, 2, 4, 6, 0, 0, 0, 0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(low));
}

// |Σ of two products| <= 510: no saturation.
inline I32x16 dot(I32x16 acc, uint32_t four, const int8_t* weights) {
  const __m256i x = _mm256_set1_epi32(int32_t(four)), ones = _mm256_set1_epi16(1);
  const __m256i* w = reinterpret_cast<const __m256i*>(weights);
  return {_mm256_add_epi32(acc.a, _mm256_madd_epi16(_mm256_maddubs_epi16(x, _mm256_load_si256(w)), ones)),
          _mm256_add_epi32(acc.b, _mm256_madd_epi16(_mm256_maddubs_epi16(x, _mm256_load_si256(w + 1)), ones))};
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

const BinaryKernel kAvx2Binary = {
    "2x16", Grouping::kPairs, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, run_binary_conv, stream};
const ImageKernel kAvx2Image = {"4x16", 0, run_image_conv};
const FloatKernel kAvx2Float = {"6x16", run_float_conv, run_float_stream};
const LaneKernel kAvx2Lanes = {"6x16", run_lane_conv, spread_lanes};
const StemKernel kAvx2Stem = {"winograd 1x16", run_stem};
const RowKernels kAvx2Rows = {max_pool_float, max_pool_bits, avg_pool, adaptive_avg_pool, normalize,
                              layer_norm,     softmax,       row_sums, row_norm,          elementwise};

}  // namespace bitedge
