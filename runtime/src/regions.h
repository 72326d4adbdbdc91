// How threads share a convolution: by pixels or by blocks of output channels, in parts that tiles fill.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "../kernels/kernels.h"

namespace bitedge {

class Regions {
 public:
  // `weights` bytes are read by every part when it is the pixels that are shared. `block_tile` blocks make a tile.
  Regions(int threads, size_t pixels, size_t blocks, size_t weights, size_t block_tile = 1)
      : pixels_(pixels), blocks_(blocks), block_tile_(block_tile) {
    if (threads <= 1) return;
    const size_t most = size_t(threads) * kPartsPerThread, block_tiles = tiles(blocks, block_tile);
    const size_t pixel_parts = parts_of(pixels < 2 * kTile ? 1 : tiles(pixels, kTile), size_t(threads));
    const size_t block_parts = parts_of(block_tiles, size_t(threads));
    by_blocks_ = block_parts > pixel_parts || (block_parts * 2 >= most && weights > kCachedWeights);
    parts_ = by_blocks_ ? block_parts : pixel_parts;
  }

  size_t count() const { return parts_; }

  void set(size_t part, Region* region) const {
    region->pixel_begin = by_blocks_ ? 0 : int32_t(cut(part, pixels_, kTile));
    region->pixel_end = by_blocks_ ? int32_t(pixels_) : int32_t(cut(part + 1, pixels_, kTile));
    region->block_begin = by_blocks_ ? int32_t(cut(part, blocks_, block_tile_)) : 0;
    region->block_end = by_blocks_ ? int32_t(cut(part + 1, blocks_, block_tile_)) : int32_t(blocks_);
  }

 private:
  static constexpr size_t kPartsPerThread = 4;
  static constexpr size_t kTile = 28;  // pixels: whole tiles of 4 and of 7
  static constexpr size_t kCachedWeights = 64 << 10;

  static size_t tiles(size_t total, size_t tile) { return (total + tile - 1) / tile; }

  // As many parts of equal size for each thread as there are, up to four; else four that differ by a tile.
  static size_t parts_of(size_t count, size_t threads) {
    for (size_t each = kPartsPerThread; each > 0; each--) {
      if (count % (threads * each) == 0) return threads * each;
    }
    return std::min(count, threads * kPartsPerThread);
  }

  size_t cut(size_t part, size_t total, size_t tile) const {
    return std::min(total, tiles(total, tile) * part / parts_ * tile);
  }

  size_t pixels_, blocks_, block_tile_, parts_ = 1;
  bool by_blocks_ = false;
};

}  // namespace bitedge
