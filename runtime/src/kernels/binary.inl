// The order in which a binary convolution walks its tiles. Included by the file of each instruction set, after
// finish.inl and fetch.inl. The file defines
//   template <int kPixels, Ending> void words_tile(const BinaryConv&, int32_t pixel, int32_t block): single words only;
//   template <int kPixels, Ending> void groups_tile(..., Fetch&): groups, then single words, and its turn of fetching;
// and kWordsPixels, kGroupsPixels, the most pixels of each.
namespace bitedge {
namespace {

inline size_t block_words(const BinaryConv& c, int group) {
  return (size_t(c.groups) * size_t(group) + size_t(c.singles)) * kBlock;
}

template <int kPixels, bool kGroups, Ending kEnding>
inline __attribute__((always_inline)) void binary_tile(const BinaryConv& c, int32_t pixel, int32_t block, Fetch& fetch) {
  if constexpr (kGroups) {
    groups_tile<kPixels, kEnding>(c, pixel, block, fetch);
  } else {
    words_tile<kPixels, kEnding>(c, pixel, block);
    fetch.turn();
  }
}

// The pixels that do not fill a tile.
template <int kPixels, bool kGroups, Ending kEnding>
void binary_rest(const BinaryConv& c, int32_t pixel, int32_t block, int32_t pixels, Fetch& fetch) {
  if (pixels == kPixels) return binary_tile<kPixels, kGroups, kEnding>(c, pixel, block, fetch);
  if constexpr (kPixels > 1) binary_rest<kPixels - 1, kGroups, kEnding>(c, pixel, block, pixels, fetch);
}

// Weights that fit the first cache next to a window of the map stay there: then all blocks of a tile of pixels follow
// each other, and residual and outputs are read and written in one stream. Otherwise one block at a time.
constexpr size_t kCachedWeights = 20 << 10;

template <bool kGroups, Ending kEnding>
void binary_conv(const BinaryConv& c) {
  constexpr int kPixels = kGroups ? kGroupsPixels : kWordsPixels;
  const Region& r = c.region;
  const size_t pixel_tiles = size_t(r.pixel_end - r.pixel_begin + kPixels - 1) / kPixels;
  Fetch fetch(c, pixel_tiles * size_t(r.block_end - r.block_begin));
  const size_t bytes =
      block_words(c, kGroups ? kGroupWords : 1) * sizeof(uint64_t) * size_t(r.block_end - r.block_begin);
  if (bytes <= kCachedWeights) {
    int32_t pixel = r.pixel_begin;
    for (; pixel + kPixels <= r.pixel_end; pixel += kPixels) {
      for (int32_t block = r.block_begin; block < r.block_end; block++) {
        binary_tile<kPixels, kGroups, kEnding>(c, pixel, block, fetch);
      }
    }
    for (int32_t block = r.block_begin; block < r.block_end && pixel < r.pixel_end; block++) {
      binary_rest<kPixels, kGroups, kEnding>(c, pixel, block, r.pixel_end - pixel, fetch);
    }
    return;
  }
  for (int32_t block = r.block_begin; block < r.block_end; block++) {
    int32_t pixel = r.pixel_begin;
    for (; pixel + kPixels <= r.pixel_end; pixel += kPixels) {
      binary_tile<kPixels, kGroups, kEnding>(c, pixel, block, fetch);
    }
    if (pixel < r.pixel_end) binary_rest<kPixels, kGroups, kEnding>(c, pixel, block, r.pixel_end - pixel, fetch);
  }
}

template <Ending kEnding>
void binary_conv(const BinaryConv& c) {
  c.groups ? binary_conv<true, kEnding>(c) : binary_conv<false, kEnding>(c);
}

void run_binary_conv(const BinaryConv& c) {
  switch (ending_of(c.finish)) {
    case Ending::kThreshold:
      return binary_conv<Ending::kThreshold>(c);
    case Ending::kScale:
      return binary_conv<Ending::kScale>(c);
    case Ending::kResidual:
      return binary_conv<Ending::kResidual>(c);
    default:
      return binary_conv<Ending::kAny>(c);
  }
}

// acc = base - 2·p, and out, for `kPixels` pixels of a block.
template <int kPixels, Ending kEnding>
class Counts {
 public:
  inline __attribute__((always_inline)) Counts(const BinaryConv& c, int32_t pixel, int32_t block)
      : tail_(c.finish, size_t(pixel), block * kBlock),
        base_(c.base + block * kBlock),
        row_(c.row ? c.row + pixel : nullptr) {}

  inline __attribute__((always_inline)) void put(int i, I32x16 p) const {
    tail_.put(size_t(i), i_sub(i_load(base_ + (row_ ? row_[i] : 0)), i_twice(p)));
  }

 private:
  Tail<kEnding> tail_;
  const int32_t* base_;
  const int32_t* row_;
};

}  // namespace
}  // namespace bitedge
