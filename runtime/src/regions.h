// How threads share a convolution: by pixels or by blocks of output channels, in parts that tiles fill.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "../kernels/kernels.h"

namespace bitedge {

class Regions {
 public:
  // `weights` bytes are read by every part when it is the pixels that are shared.
  Regions(int threads, size_t pixels, size_t blocks, size_t weights) : pixels_(pixels), blocks_(blocks) {
    if (threads <= 1) return;
    const size_t wanted = size_t(threads) * kPartsPerThread;
    const size_t pixel_parts = std::max(size_t(1), std::min(wanted, pixels / kTile));
    const size_t block_parts = std::min(wanted, blocks);
    by_blocks_ = block_parts > pixel_parts || (block_parts == wanted && weights > kCachedWeights);
    parts_ = by_blocks_ ? block_parts : pixel_parts;
  }

  size_t count() const { return parts_; }

  void set(size_t part, Region* region) const {
    region->pixel_begin = by_blocks_ ? 0 : int32_t(cut(part, pixels_, kTile));
    region->pixel_end = by_blocks_ ? int32_t(pixels_) : int32_t(cut(part + 1, pixels_, kTile));
    region->block_begin = by_blocks_ ? int32_t(cut(part, blocks_, 1)) : 0;
    region->block_end = by_blocks_ ? int32_t(cut(part + 1, blocks_, 1)) : int32_t(blocks_);
  }

 private:
  static constexpr size_t kPartsPerThread = 4;
  static constexpr size_t kTile = 28;  // pixels: whole tiles of 4 and of 7
  static constexpr size_t kCachedWeights = 64 << 10;

  size_t cut(size_t part, size_t total, size_t tile) const {
    return part == parts_ ? total : total * part / parts_ / tile * tile;
  }

  size_t pixels_, blocks_, parts_ = 1;
  bool by_blocks_ = false;
};

}  // namespace bitedge
