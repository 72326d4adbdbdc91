// NEON, part of every Armv8.0.
#include "kernels/kernels.h"
#include "kernels/vector_neon.h"
//
#include "kernels/epilogue.inl"
#include "kernels/fetch.inl"

namespace bitedge {
namespace {

constexpr int kFloatPixels = 6, kFloatBlocks = 1, kStreamBlocks = 4;
constexpr int kImagePixels = 4, kImageBlocks = 1;
constexpr int kStemSums = 7;
constexpr int kTallies = 31;  // times 8 bits per byte stays below 256

// Counts of bytes, widened before they overflow.
struct Tally {
  uint8x16_t ones, twos;
  uint64x2_t sum;

  inline __attribute__((always_inline)) void clear() {
    ones = twos = vdupq_n_u8(0);
    sum = vdupq_n_u64(0);
  }
  inline __attribute__((always_inline)) void add(uint8x16_t one) { ones = vaddq_u8(ones, one); }
  // `zeros` counts the complement of the bits of weight one.
  inline __attribute__((always_inline)) void add(uint8x16_t zeros, uint8x16_t two) {
    ones = vaddq_u8(ones, zeros);
    twos = vaddq_u8(twos, two);
  }
  static inline __attribute__((always_inline)) uint64x2_t wide(uint8x16_t bytes) {
    return vpaddlq_u32(vpaddlq_u16(vpaddlq_u8(bytes)));
  }
  // sum = Σ ones - 2·Σ twos modulo 2^64 while groups are added; turn() makes it the population.
  inline __attribute__((always_inline)) void flush() {
    sum = vsubq_u64(vaddq_u64(sum, wide(ones)), vshlq_n_u64(wide(twos), 1));
    ones = twos = vdupq_n_u8(0);
  }
  inline __attribute__((always_inline)) void turn(int32_t bits) { sum = vsubq_u64(vdupq_n_u64(uint64_t(bits)), sum); }
  inline __attribute__((always_inline)) uint64x2_t total() const { return sum; }
};

// Four products per channel: pairs of 16-bit sums, which hold 2·128 each.
inline I32x16 dot(I32x16 acc, uint32_t four, const int8_t* weights) {
  const int8x8_t x = vreinterpret_s8_u32(vdup_n_u32(four));
  BITEDGE_EACH {
    const int8x16_t w = vld1q_s8(weights + 16 * k);
    const int16x8_t sums = vpaddq_s16(vmull_s8(vget_low_s8(w), x), vmull_s8(vget_high_s8(w), x));
    acc.q[k] = vpadalq_s16(acc.q[k], sums);
  }
  return acc;
}

}  // namespace
}  // namespace bitedge

#include "kernels/conv.inl"
#include "kernels/image.inl"
#include "kernels/lanes.inl"
#include "kernels/neon_binary.inl"
#include "kernels/rows.inl"
#include "kernels/winograd.inl"

namespace bitedge {

const BinaryKernel kNeonBinary = {
    "2x8", Grouping::kRows, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, run_binary_conv, stream};
const ImageKernel kNeonImage = {"4x16", 128, run_image_conv};
const FloatKernel kNeonFloat = {"6x16", run_float_conv, run_float_stream};
const LaneKernel kNeonLanes = {"6x16", run_lane_conv, spread_lanes};
const StemKernel kNeonStem = {"winograd 1x16", run_stem};
const RowKernels kNeonRows = {max_pool_float, max_pool_bits, avg_pool, adaptive_avg_pool, normalize,
                              layer_norm,     softmax,       row_sums, row_norm,          elementwise};

}  // namespace bitedge
