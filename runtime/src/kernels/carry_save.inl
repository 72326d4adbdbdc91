// Binary convolution where counting bits is dear: sums are kept as bits of weight one and two by full adders, and only
// every fourth word is counted, byte by byte. Included by the file of each instruction set, before binary.inl. The file
// defines kCarryPixels and a type `Words` of 64-bit lanes, kLanes of them, with
//   load, broadcast, zero, exclusive (xor)
//   Words add(Words* sum, Words a, Words b): sum ^= a ^ b, returns the carry
//   Words add_pair(Words* sum, x0, x01, w0, w01): the same for a = x0 ^ w0, a ^ b = x01 ^ w01 (see Grouping::kPairs)
//   Words count_bytes(Words x): the population of each byte; add_bytes; fold(Words bytes): the sum of the bytes of a
//   lane add_lanes, shift_lanes (left), store_counts(int32_t*, Words)
namespace bitedge {
namespace {

// The sums of kLanes channels of one pixel.
struct Sums {
  Words ones, twos, fours;  // fours: counts of bytes
  Words total;              // of `fours`, once it has grown

  inline __attribute__((always_inline)) void clear() { ones = twos = fours = total = zero(); }
  // Adds two carries of weight two; at most 31 times before flush().
  inline __attribute__((always_inline)) void carry(Words a, Words b) {
    fours = add_bytes(fours, count_bytes(add(&twos, a, b)));
  }
  inline __attribute__((always_inline)) void flush() {
    total = add_lanes(total, fold(fours));
    fours = zero();
  }
  inline __attribute__((always_inline)) Words count() {
    flush();
    const Words low = add_lanes(fold(count_bytes(ones)), shift_lanes(fold(count_bytes(twos)), 1));
    return add_lanes(low, shift_lanes(total, 2));
  }
};

constexpr int kCarries = 31;  // times 8 bits per byte stays below 256

// kPixels pixels by kLanes channels of a block, the `part`th of them: populations to counts[pixel][channel].
template <int kPixels>
inline void carry_part(const BinaryConv& c, const uint64_t* const (&in)[kPixels], const uint64_t* w, int part,
                       int32_t (&counts)[kPixels][kBlock]) {
  Sums sums[kPixels];
  BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) sums[i].clear();
  w += part * kLanes;
  const int32_t* step = c.region.step;
  int carries = 0;
  const auto room = [&] {
    if (++carries < kCarries) return;
    carries = 0;
    BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) sums[i].flush();
  };

  int32_t s = 0;
  for (; s + 2 <= c.groups; s += 2, w += 4 * kBlock) {
    const Words w0 = load(w), w01 = load(w + kBlock), v0 = load(w + 2 * kBlock), v01 = load(w + 3 * kBlock);
    BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) {
      const uint64_t *x = in[i] + step[s], *y = in[i] + step[s + 1];
      const Words a = add_pair(&sums[i].ones, broadcast(x[0]), broadcast(x[1]), w0, w01);
      const Words b = add_pair(&sums[i].ones, broadcast(y[0]), broadcast(y[1]), v0, v01);
      sums[i].carry(a, b);
    }
    room();
  }
  if (s < c.groups) {
    BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) {
      const uint64_t* x = in[i] + step[s];
      sums[i].carry(add_pair(&sums[i].ones, broadcast(x[0]), broadcast(x[1]), load(w), load(w + kBlock)), zero());
    }
    w += 2 * kBlock;
    room();
  }

  step += c.groups;
  const auto word = [&](int i, int32_t at) {
    return exclusive(broadcast(in[i][step[at]]), load(w + (at & 3) * kBlock));
  };
  s = 0;
  for (; s + 4 <= c.singles; s += 4, w += 4 * kBlock) {
    BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) {
      const Words a = add(&sums[i].ones, word(i, s), word(i, s + 1)),
                  b = add(&sums[i].ones, word(i, s + 2), word(i, s + 3));
      sums[i].carry(a, b);
    }
    room();
  }
  for (; s < c.singles; s++) {
    BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) sums[i].carry(add(&sums[i].ones, word(i, s), zero()), zero());
    room();
  }
  BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) store_counts(counts[i] + part * kLanes, sums[i].count());
}

template <int kPixels, int kGroup, EpilogueKind kKind>
void carry_tile(const BinaryConv& c, int32_t pixel, int32_t block);

template <int kPixels, EpilogueKind kKind>
inline void words_tile(const BinaryConv& c, int32_t pixel, int32_t block) {
  carry_tile<kPixels, 1, kKind>(c, pixel, block);
}
template <int kPixels, EpilogueKind kKind>
inline void groups_tile(const BinaryConv& c, int32_t pixel, int32_t block, Fetch& fetch) {
  carry_tile<kPixels, 2, kKind>(c, pixel, block);
  fetch.turn();
}

constexpr int kWordsPixels = kCarryPixels, kGroupsPixels = kCarryPixels, kGroupWords = 2;

}  // namespace
}  // namespace bitedge

#include "kernels/binary.inl"

namespace bitedge {
namespace {

template <int kPixels, int kGroup, EpilogueKind kKind>
void carry_tile(const BinaryConv& c, int32_t pixel, int32_t block) {
  const uint64_t* in[kPixels];
  BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) in[i] = c.map + c.region.origin[pixel + i];
  int32_t counts[kPixels][kBlock];
  const uint64_t* w = c.weights + size_t(block) * block_words(c, kGroup);
  for (int part = 0; part < kBlock / kLanes; part++) carry_part<kPixels>(c, in, w, part, counts);
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
