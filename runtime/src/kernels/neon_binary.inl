// Binary convolution on NEON. Included by neon.cpp and neondot.cpp, after epilogue.inl. The file defines a type
// `Tally`, the population counts of two channels as they grow, with clear(), add(ones, twos) for counts of bytes of
// weight one and two, add(ones), flush() every kTallies calls, and `uint64x2_t total()`.
//
// Three words of a group (rows 3i, 3i + 1, 3i + 2 of the kernel) are a full adder without a running bit, since parity
// is linear: with a = x0 ^ w0, t = (x0 ^ x1) ^ (w0 ^ w1) and n = ~(x0 ^ x1 ^ x2) ^ (w0 ^ w1 ^ w2), three exclusive ors,
// the carry is n where t, else a: one select. n is the complement of the sum, so its count is taken from 64. Then two
// counts and two additions: 8 operations for 384 products, 48 each, where one word at a time takes 9.
namespace bitedge {
namespace {

// Few pixels by many channels: a broadcast takes a slot of the vector pipes on most cores, a load of weights does not.
constexpr int kWordsPixels = 2, kGroupsPixels = 2, kGroupWords = 3;
constexpr int kWordsPairs = 8, kGroupsPairs = 4;  // registers of two channels that are computed together

inline uint8x16_t load_words(const uint64_t* p) { return vreinterpretq_u8_u64(vld1q_u64(p)); }
inline uint8x16_t broadcast(const uint64_t* p) { return vreinterpretq_u8_u64(vld1q_dup_u64(p)); }

// 2 kPairs channels, the `part`th of a block, of kPixels pixels: populations to counts[pixel][channel].
template <int kPixels, int kPairs, bool kGroups>
inline void count_part(const BinaryConv& c, const uint64_t* const (&in)[kPixels], const uint64_t* w, int part,
                       int32_t (&counts)[kPixels][kBlock]) {
  Tally tally[kPixels][kPairs];
  BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) {
    BITEDGE_UNROLL for (int j = 0; j < kPairs; j++) tally[i][j].clear();
  }
  w += part * 2 * kPairs;
  const int32_t* step = c.region.step;
  for (int32_t s = 0; kGroups && s < c.groups;) {
    const int32_t end = c.groups - s < kTallies ? c.groups : s + kTallies;
    for (; s < end; s++, w += 3 * kBlock) {
      uint8x16_t x0[kPixels], x01[kPixels], x012[kPixels];
      BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) {
        const uint64_t* x = in[i] + step[s];
        x0[i] = broadcast(x);
        x01[i] = broadcast(x + 1);
        x012[i] = broadcast(x + 2);
      }
      BITEDGE_UNROLL for (int j = 0; j < kPairs; j++) {
        const uint8x16_t w0 = load_words(w + 2 * j), w01 = load_words(w + kBlock + 2 * j);
        const uint8x16_t w012 = load_words(w + 2 * kBlock + 2 * j);
        BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) {
          const uint8x16_t zeros = veorq_u8(x012[i], w012);
          const uint8x16_t carry = vbslq_u8(veorq_u8(x01[i], w01), zeros, veorq_u8(x0[i], w0));
          tally[i][j].add(vcntq_u8(zeros), vcntq_u8(carry));
        }
        // Weights of the next pair must not be loaded yet: the tile fills the register file.
        __asm__ volatile("" ::: "memory");
      }
    }
    BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) {
      BITEDGE_UNROLL for (int j = 0; j < kPairs; j++) tally[i][j].flush();
    }
  }
  step += c.groups;
  BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) {
    BITEDGE_UNROLL for (int j = 0; j < kPairs; j++) tally[i][j].turn(64 * c.groups);
  }
  for (int32_t s = 0; s < c.singles;) {
    const int32_t end = c.singles - s < kTallies ? c.singles : s + kTallies;
    for (; s < end; s++, w += kBlock) {
      uint8x16_t words[kPairs];
      BITEDGE_UNROLL for (int j = 0; j < kPairs; j++) words[j] = load_words(w + 2 * j);
      BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) {
        const uint8x16_t x = broadcast(in[i] + step[s]);
        BITEDGE_UNROLL for (int j = 0; j < kPairs; j++) tally[i][j].add(vcntq_u8(veorq_u8(x, words[j])));
      }
    }
    BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) {
      BITEDGE_UNROLL for (int j = 0; j < kPairs; j++) tally[i][j].flush();
    }
  }
  BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) {
    BITEDGE_UNROLL for (int j = 0; j < kPairs; j += 2) {
      const uint32x4_t four = vcombine_u32(vmovn_u64(tally[i][j].total()), vmovn_u64(tally[i][j + 1].total()));
      vst1q_s32(counts[i] + 2 * (part * kPairs + j), vreinterpretq_s32_u32(four));
    }
  }
}

template <int kPixels, bool kGroups, EpilogueKind kKind>
void neon_tile(const BinaryConv& c, int32_t pixel, int32_t block);

template <int kPixels, EpilogueKind kKind>
inline void words_tile(const BinaryConv& c, int32_t pixel, int32_t block) {
  neon_tile<kPixels, false, kKind>(c, pixel, block);
}
template <int kPixels, EpilogueKind kKind>
inline void groups_tile(const BinaryConv& c, int32_t pixel, int32_t block, Fetch& fetch) {
  neon_tile<kPixels, true, kKind>(c, pixel, block);
  fetch.turn();
}

}  // namespace
}  // namespace bitedge

#include "kernels/binary.inl"

namespace bitedge {
namespace {

template <int kPixels, bool kGroups, EpilogueKind kKind>
void neon_tile(const BinaryConv& c, int32_t pixel, int32_t block) {
  const uint64_t* in[kPixels];
  BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) in[i] = c.map + c.region.origin[pixel + i];
  int32_t counts[kPixels][kBlock];
  const uint64_t* w = c.weights + size_t(block) * block_words(c, kGroups ? kGroupWords : 1);
  constexpr int kPairs = kGroups ? kGroupsPairs : kWordsPairs;
  for (int part = 0; part < kBlock / 2 / kPairs; part++) count_part<kPixels, kPairs, kGroups>(c, in, w, part, counts);
  Counts<kPixels, kKind> out(c, pixel, block);
  BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) out.put(i, i_load(counts[i]));
  out.done();
}

// One pixel: memory is the limit.
void stream(const BinaryConv& c) {
  for (int32_t block = c.region.block_begin; block < c.region.block_end; block++) {
    words_tile<1, EpilogueKind::kSteps>(c, c.region.pixel_begin, block);
  }
}

}  // namespace
}  // namespace bitedge
