// NEON with the dot products of Armv8.2, as from Cortex-A55 and A76 on: binary and image convolutions. Everything else
// is neon.cpp's.
#include "kernels/kernels.h"
#include "kernels/vector_neon.h"
//
#include "kernels/epilogue.inl"
#include "kernels/fetch.inl"

namespace bitedge {
namespace {

constexpr int kImagePixels = 4, kImageBlocks = 1;
constexpr int kTallies = 1 << 24;  // 32-bit sums: no need to widen

// A dot product adds the counts of four bytes into 32 bits, and on the way takes them times -1 for the complement of
// the bits of weight one, times 2 for those of weight two.
struct Tally {
  int32x4_t acc;

  static inline __attribute__((always_inline)) int32x4_t add_times(int32x4_t to, uint8x16_t counts, int8_t factor) {
    return vdotq_s32(to, vreinterpretq_s8_u8(counts), vdupq_n_s8(factor));
  }
  inline __attribute__((always_inline)) void clear() { acc = vdupq_n_s32(0); }
  inline __attribute__((always_inline)) void add(uint8x16_t one) { acc = add_times(acc, one, 1); }
  inline __attribute__((always_inline)) void add(uint8x16_t zeros, uint8x16_t two) {
    acc = add_times(add_times(acc, zeros, -1), two, 2);
  }
  inline __attribute__((always_inline)) void flush() {}
  // The 64 bits of a channel are two lanes, each of which counts half of them.
  inline __attribute__((always_inline)) void turn(int32_t bits) { acc = vaddq_s32(acc, vdupq_n_s32(bits / 2)); }
  inline __attribute__((always_inline)) uint64x2_t total() const { return vreinterpretq_u64_s64(vpaddlq_s32(acc)); }
};

inline I32x16 dot(I32x16 acc, uint32_t four, const int8_t* weights) {
  const int8x16_t x = vreinterpretq_s8_u32(vdupq_n_u32(four));
  BITEDGE_EACH acc.q[k] = vdotq_s32(acc.q[k], vld1q_s8(weights + 16 * k), x);
  return acc;
}

}  // namespace
}  // namespace bitedge

#include "kernels/image.inl"
#include "kernels/neon_binary.inl"

namespace bitedge {

const BinaryKernel kNeonDotBinary = {
    "2x8", Grouping::kRows, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, run_binary_conv, stream};
const ImageKernel kNeonDotImage = {"4x16", 128, run_image_conv};

}  // namespace bitedge
