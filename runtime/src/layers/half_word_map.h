// The map of a binary kernel of half words, 32 bits each. Half words 2i and 2i + 1 of a pixel become (a0, a0 ^ a1) as
// in Grouping::kPairs. Where their number is odd, and the last word of 64 bits would be half empty, the last one is
// followed by its exclusive or with that of the next tap in the row, so that taps make pairs too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/kernels.h"
#include "layers/geometry.h"

namespace bitedge {

// Has what BinaryLayer asks of a map; see binary_map.h. One group of channels.
class HalfWordMap {
 public:
  using Word = uint32_t;

  HalfWordMap(const Geometry& geometry, Grouping grouping, int32_t pad_value);

  size_t unit() const { return words_ + words_ % 2; }
  size_t group_unit() const { return unit(); }
  bool is_input() const { return false; }
  size_t image_words() const { return geometry_.map_pixels() * unit(); }
  void fill(const uint32_t* image, uint32_t* map, int32_t begin, int32_t end) const;

 private:
  void fill_row(const uint32_t* from, uint32_t* to) const;

  Geometry geometry_;
  size_t words_;  // of one pixel
  std::vector<uint32_t> pad_pixel_;
};

}  // namespace bitedge
