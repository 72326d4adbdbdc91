// How threads share a convolution: by pixels, or by blocks of output channels, in parts that tiles fill.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"

namespace bitedge {

// `pixels` by `blocks`, whose register tiles have so many of each. `weights` bytes are read by every thread when it is
// the pixels that are shared.
struct Shared {
  size_t pixels, blocks, weights, pixel_tile = 8, block_tile = 1;
};

// Parts follow each other by pixels within blocks. Neighbours go to one thread, so that layers of a shape, cut alike,
// find their residuals in its cache.
class Regions {
 public:
  Regions(int threads, const Shared& shared) : shared_(shared) {
    if (threads <= 1) return;
    const size_t most = size_t(threads) * tuning::kPartsPerThread;
    const size_t pixel_tiles = tiles(shared.pixels, shared.pixel_tile),
                 block_tiles = tiles(shared.blocks, shared.block_tile);
    const bool by_blocks = (shared.weights > tuning::kSecondCacheWeights && block_tiles >= size_t(threads)) ||
                           pixel_tiles < std::min(block_tiles, most);
    if (by_blocks) block_parts_ = std::min(block_tiles, most);
    pixel_parts_ = std::max(size_t(1), std::min(pixel_tiles / 2, most / block_parts_));
  }

  size_t count() const { return pixel_parts_ * block_parts_; }

  void set(size_t part, Region* region) const {
    const size_t pixel = part % pixel_parts_, block = part / pixel_parts_;
    region->pixel_begin = cut(pixel, pixel_parts_, shared_.pixels, shared_.pixel_tile);
    region->pixel_end = cut(pixel + 1, pixel_parts_, shared_.pixels, shared_.pixel_tile);
    region->block_begin = cut(block, block_parts_, shared_.blocks, shared_.block_tile);
    region->block_end = cut(block + 1, block_parts_, shared_.blocks, shared_.block_tile);
  }

 private:
  static size_t tiles(size_t total, size_t tile) { return (total + tile - 1) / tile; }

  static int32_t cut(size_t part, size_t parts, size_t total, size_t tile) {
    return int32_t(std::min(total, tiles(total, tile) * part / parts * tile));
  }

  Shared shared_;
  size_t pixel_parts_ = 1, block_parts_ = 1;
};

}  // namespace bitedge
