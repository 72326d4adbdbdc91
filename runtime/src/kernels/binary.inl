// The order in which a binary convolution walks its tiles. Included by the file of each instruction set, after
// epilogue.inl and fetch.inl. The file defines
//   words_tile<kPixels, EpilogueKind>(const BinaryConv&, int32_t pixel, int32_t block): single words only;
//   groups_tile<kPixels, EpilogueKind>(the same, Fetch&): groups, then single words, and its turn of fetching;
// and kWordsPixels, kGroupsPixels, the most pixels of each.
namespace bitedge {
namespace {

inline size_t block_words(const BinaryConv& c, int group) {
  return (size_t(c.groups) * size_t(group) + size_t(c.singles)) * kBlock;
}

template <int kPixels, bool kGroups, EpilogueKind kKind>
inline __attribute__((always_inline)) void binary_tile(const BinaryConv& c, int32_t pixel, int32_t block,
                                                       Fetch& fetch) {
  if constexpr (kGroups) {
    groups_tile<kPixels, kKind>(c, pixel, block, fetch);
  } else {
    words_tile<kPixels, kKind>(c, pixel, block);
    fetch.turn();
  }
}

// The pixels that do not fill a tile.
template <int kPixels, bool kGroups, EpilogueKind kKind>
void binary_rest(const BinaryConv& c, int32_t pixel, int32_t block, int32_t pixels, Fetch& fetch) {
  if (pixels == kPixels) return binary_tile<kPixels, kGroups, kKind>(c, pixel, block, fetch);
  if constexpr (kPixels > 1) binary_rest<kPixels - 1, kGroups, kKind>(c, pixel, block, pixels, fetch);
}

// Weights that fit the first cache next to a window of the map stay there: then all blocks of a tile of pixels follow
// each other, and residual and outputs are read and written in one stream. Otherwise one block at a time.
template <bool kGroups, EpilogueKind kKind>
void binary_conv(const BinaryConv& c) {
  constexpr int kPixels = kGroups ? kGroupsPixels : kWordsPixels;
  const Region& r = c.region;
  const size_t pixel_tiles = size_t(r.pixel_end - r.pixel_begin + kPixels - 1) / kPixels;
  Fetch fetch(c, pixel_tiles * size_t(r.block_end - r.block_begin));
  const size_t bytes =
      block_words(c, kGroups ? kGroupWords : 1) * sizeof(uint64_t) * size_t(r.block_end - r.block_begin);
  if (bytes <= tuning::kFirstCacheWeights) {
    int32_t pixel = r.pixel_begin;
    for (; pixel + kPixels <= r.pixel_end; pixel += kPixels) {
      for (int32_t block = r.block_begin; block < r.block_end; block++) {
        binary_tile<kPixels, kGroups, kKind>(c, pixel, block, fetch);
      }
    }
    for (int32_t block = r.block_begin; block < r.block_end && pixel < r.pixel_end; block++) {
      binary_rest<kPixels, kGroups, kKind>(c, pixel, block, r.pixel_end - pixel, fetch);
    }
    return;
  }
  for (int32_t block = r.block_begin; block < r.block_end; block++) {
    int32_t pixel = r.pixel_begin;
    for (; pixel + kPixels <= r.pixel_end; pixel += kPixels) {
      binary_tile<kPixels, kGroups, kKind>(c, pixel, block, fetch);
    }
    if (pixel < r.pixel_end) binary_rest<kPixels, kGroups, kKind>(c, pixel, block, r.pixel_end - pixel, fetch);
  }
}

template <EpilogueKind kKind>
void binary_conv(const BinaryConv& c) {
  c.groups ? binary_conv<true, kKind>(c) : binary_conv<false, kKind>(c);
}

void run_binary_conv(const BinaryConv& c) {
  switch (c.epilogue.kind) {
    case EpilogueKind::kThreshold:
      return binary_conv<EpilogueKind::kThreshold>(c);
    case EpilogueKind::kScale:
      return binary_conv<EpilogueKind::kScale>(c);
    case EpilogueKind::kResidual:
      return binary_conv<EpilogueKind::kResidual>(c);
    case EpilogueKind::kShifted:
      return binary_conv<EpilogueKind::kShifted>(c);
    case EpilogueKind::kRescaled:
      return binary_conv<EpilogueKind::kRescaled>(c);
    default:
      return binary_conv<EpilogueKind::kSteps>(c);
  }
}

// acc = base - 2·p, and out, for `kPixels` pixels of a block.
template <int kPixels, EpilogueKind kKind>
class Counts {
 public:
  inline __attribute__((always_inline)) Counts(const BinaryConv& c, int32_t pixel, int32_t block)
      : tile_(c.epilogue, size_t(pixel), block * kBlock),
        base_(c.base + block * kBlock),
        row_(c.row ? c.row + pixel : nullptr) {}

  inline __attribute__((always_inline)) void put(int i, I32x16 p) {
    tile_.put(size_t(i), i_sub(i_load(base_ + (row_ ? row_[i] : 0)), i_twice(p)));
  }

  inline __attribute__((always_inline)) void done() { tile_.done(); }

 private:
  EpilogueTile<kPixels, kKind> tile_;
  const int32_t* base_;
  const int32_t* row_;
};

}  // namespace
}  // namespace bitedge
