// Copies an image into a padded map of floats or bytes, channels innermost.
#pragma once

#include <algorithm>
#include <cstring>

#include "layers/geometry.h"

namespace bitedge {

// Rows [begin, end) of the map. `convert` turns `n` elements of the image into elements of the map.
template <typename From, typename To, typename Convert>
void fill_padded(const Geometry& g, const From* image, To* map, int32_t begin, int32_t end, const Convert& convert) {
  const size_t channels = size_t(g.in.channels), width = size_t(g.width) * channels;
  for (int32_t row = begin; row < end; row++) {
    To* to = map + size_t(row) * width;
    const int64_t y = int64_t(row) - g.top;
    const bool inside = y >= 0 && y < g.in.height;
    const size_t first = inside ? std::min(size_t(g.left) * channels, width) : width;
    const size_t count = std::min(width - first, size_t(g.in.width) * channels);
    std::memset(to, 0, first * sizeof(To));
    if (count) convert(image + size_t(y) * size_t(g.in.width) * channels, to + first, count);
    std::memset(to + first + count, 0, (width - first - count) * sizeof(To));
  }
}

}  // namespace bitedge
