// The map that a binary kernel reads: padded, groups of channels on word boundaries, words combined as the kernel
// wants.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/kernels.h"
#include "layers/geometry.h"

namespace bitedge {

class BinaryMap {
 public:
  using Word = uint64_t;

  BinaryMap(const Geometry& geometry, Grouping grouping, int32_t pad_value);

  // Words of one pixel of the map, and from one group of channels to the next.
  size_t unit() const { return group_unit_ * groups_; }
  size_t group_unit() const { return group_unit_; }

  // The map is the input itself.
  bool is_input() const { return same_; }
  size_t image_words() const { return geometry_.map_pixels() * unit(); }

  // Writes rows [begin, end) of the map of one image.
  void fill(const uint64_t* image, uint64_t* map, int32_t begin, int32_t end) const;

 private:
  const uint64_t* row(const uint64_t* image, int64_t map_row) const;
  void fill_row(const uint64_t* image, uint64_t* to, int32_t map_row) const;
  void fill_row_triples(const uint64_t* image, uint64_t* to, int32_t map_row) const;
  uint64_t word(const uint64_t* pixel, size_t group, size_t i) const;

  Geometry geometry_;
  Grouping grouping_;
  size_t groups_, depth_, words_;  // of channels; channels and words of each
  size_t group_unit_;
  bool aligned_;  // every group begins on a word of the input
  bool same_;
  std::vector<uint64_t> pad_pixel_;  // groups · words
};

}  // namespace bitedge
