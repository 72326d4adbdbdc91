// Any machine with vectors of 16 bytes that GCC or Clang compile for: x86-64 with SSE4.2, 32-bit ARM with NEON and
// VFPv4, RISC-V, WebAssembly with SIMD128.
#include "kernels/kernels.h"
#include "kernels/vector_portable.h"
//
#include "kernels/epilogue.inl"
#include "kernels/fetch.inl"

#if defined(__SSSE3__)
#include <tmmintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#elif defined(__wasm_simd128__)
#include <wasm_simd128.h>
#endif

namespace bitedge {
namespace {

constexpr int kFloatPixels = 2, kFloatBlocks = 1, kStreamBlocks = 4;
constexpr int kImagePixels = 2, kImageBlocks = 1;
constexpr int kStemSums = 7;
constexpr int kCarryPixels = 2, kLanes = 2;

typedef uint64_t Words __attribute__((vector_size(16)));

inline Words broadcast(uint64_t x) { return Words{x, x}; }
inline Words zero() { return broadcast(0); }
inline Words load(const uint64_t* p) {
  Words x;
  __builtin_memcpy(&x, p, sizeof x);
  return x;
}
inline Words exclusive(Words a, Words b) { return a ^ b; }
// Of three bits, the carry is the first of them where it equals the second, else the third.
inline Words majority(Words first, Words differs, Words third) { return first ^ (differs & (first ^ third)); }
inline Words add(Words* sum, Words a, Words b) {
  const Words differs = a ^ b, carry = majority(a, differs, *sum);
  *sum ^= differs;
  return carry;
}
inline Words add_pair(Words* sum, Words x0, Words x01, Words w0, Words w01) {
  const Words differs = x01 ^ w01, carry = majority(x0 ^ w0, differs, *sum);
  *sum ^= differs;
  return carry;
}
inline Words add_bytes(Words a, Words b) {
  typedef uint8_t Bytes __attribute__((vector_size(16)));
  return (Words)((Bytes)a + (Bytes)b);
}
inline Words count_bytes(Words x) {
#if defined(__SSSE3__)
  const __m128i table = _mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4);
  const Words low = x & 0x0f0f0f0f0f0f0f0f, high = (x >> 4) & 0x0f0f0f0f0f0f0f0f;
  return add_bytes((Words)_mm_shuffle_epi8(table, (__m128i)low), (Words)_mm_shuffle_epi8(table, (__m128i)high));
#elif defined(__ARM_NEON)
  return (Words)vcntq_u8((uint8x16_t)x);
#elif defined(__wasm_simd128__)
  return (Words)wasm_i8x16_popcnt((v128_t)x);
#else
  x -= (x >> 1) & 0x5555555555555555;
  x = (x & 0x3333333333333333) + ((x >> 2) & 0x3333333333333333);
  return (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0f;
#endif
}
inline Words fold(Words bytes) {
#if defined(__SSSE3__)
  return (Words)_mm_sad_epu8((__m128i)bytes, _mm_setzero_si128());
#else
  Words sums = (bytes & 0x00ff00ff00ff00ff) + ((bytes >> 8) & 0x00ff00ff00ff00ff);
  sums += sums >> 32;
  return (sums + (sums >> 16)) & 0xffff;
#endif
}
inline Words add_lanes(Words a, Words b) { return a + b; }
inline Words shift_lanes(Words a, int n) { return a << n; }
inline void store_counts(int32_t* to, Words x) {
  to[0] = int32_t(x[0]);
  to[1] = int32_t(x[1]);
}

// Bytes 0 and 2, and 1 and 3, of each channel in halves of its 32 bits. |Σ of two products| <= 510: they hold it.
inline I32x16 dot(I32x16 acc, uint32_t four, const int8_t* weights) {
  const Ints8 even = (Ints8)any_of_four(int32_t(four & 0x00ff00ff)),
              odd = (Ints8)any_of_four(int32_t(four >> 8 & 0x00ff00ff));
  return i_each([&](int k) {
    Ints8 w;
    __builtin_memcpy(&w, weights + 16 * k, sizeof w);
    const Ints8 sums = ((w << 8) >> 8) * even + (w >> 8) * odd;
    return acc.q[k] + (((Ints4)sums << 16) >> 16) + ((Ints4)sums >> 16);
  });
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

const BinaryKernel kPortableBinary = {
    "2x16", Grouping::kPairs, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, run_binary_conv, stream};
const ImageKernel kPortableImage = {"2x16", 0, run_image_conv};
const FloatKernel kPortableFloat = {"2x16", run_float_conv, run_float_stream};
const LaneKernel kPortableLanes = {"2x16", run_lane_conv, spread_lanes};
const StemKernel kPortableStem = {"winograd 1x16", run_stem};
const RowKernels kPortableRows = {max_pool_float, max_pool_bits, avg_pool, adaptive_avg_pool, normalize,
                                  layer_norm,     softmax,       row_sums, row_norm,          elementwise};

}  // namespace bitedge
