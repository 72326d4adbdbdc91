// Where the windows of a convolution lie in a map that is padded, so that no tap falls outside of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace bitedge {

// Images with few output pixels are computed together, up to this many.
constexpr size_t kMergedImages = 16;

class Geometry {
 public:
  Geometry(const Window& window, const Shape& in, const Shape& out);

  // The part of the padded image that windows touch, and where the image begins in it.
  int32_t height, width, top, left;
  bool padded;  // some tap falls outside of the image
  Window window;
  Shape in, out;

  // Pixels of the map before the image's row y and column x.
  size_t at(int64_t y, int64_t x) const { return size_t(y) * size_t(width) + size_t(x); }
  size_t map_pixels() const { return size_t(height) * size_t(width); }

  // How many images one table of origins covers: 1 when an image alone keeps the kernels busy.
  size_t merged() const { return out.pixels() <= 64 ? kMergedImages : 1; }

  // [merged images, output pixels]: offset of each window in maps of `unit` elements per pixel.
  std::vector<int32_t> origins(size_t unit) const;

  // Offsets of the taps of a window, in pixels.
  std::vector<int32_t> taps() const;

  // Output pixels see different parts of the image: which taps are real, by class. Class 0 is in the interior if any
  // is.
  struct Classes {
    std::vector<std::vector<bool>> real;  // [class][tap]
    std::vector<int32_t> of_pixel;        // [merged images, output pixels]
  };
  Classes classes() const;

  // Whether offsets in maps of `unit` elements per pixel fit 32 bits, and map and tables are of a sane size next to the
  // image. What does not fit runs by the reference.
  bool fits(size_t unit) const;
};

}  // namespace bitedge
