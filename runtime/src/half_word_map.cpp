#include "half_word_map.h"

#include <algorithm>

namespace bitedge {

HalfWordMap::HalfWordMap(const Geometry& geometry, Grouping, int32_t pad_value)
    : geometry_(geometry), words_((size_t(geometry.in.channels) + 31) / 32) {
  pad_pixel_.assign(words_, pad_value < 0 ? ~uint32_t(0) : 0);  // 0 is taken as +1, as everywhere
  if (pad_value < 0 && geometry.in.channels % 32) pad_pixel_.back() = (uint32_t(1) << geometry.in.channels % 32) - 1;
}

void HalfWordMap::fill(const uint32_t* image, uint32_t* map, int32_t begin, int32_t end) const {
  const size_t pitch = size_t(geometry_.in.width) * geometry_.in.words() * 2;
  for (int32_t row = begin; row < end; row++) {
    const int64_t y = int64_t(row) - geometry_.top;
    const bool inside = y >= 0 && y < geometry_.in.height;
    fill_row(inside ? image + size_t(y) * pitch : nullptr, map + size_t(row) * size_t(geometry_.width) * unit());
  }
}

// `from` is a row of the image, or null in the padding above and below.
void HalfWordMap::fill_row(const uint32_t* from, uint32_t* to) const {
  const int64_t width = geometry_.width, left = geometry_.left;
  for (int64_t x = 0; x < width; x++) {
    const bool inside = from && x >= left && x - left < geometry_.in.width;
    const uint32_t* pixel = inside ? from + size_t(x - left) * geometry_.in.words() * 2 : pad_pixel_.data();
    uint32_t* out = to + size_t(x) * unit();
    for (size_t i = 0; i + 1 < words_; i += 2) {
      out[i] = pixel[i];
      out[i + 1] = pixel[i] ^ pixel[i + 1];
    }
    if (words_ % 2) out[words_ - 1] = out[words_] = pixel[words_ - 1];
  }
  if (words_ % 2 == 0) return;
  const int64_t next = geometry_.window.dilation_w;
  for (int64_t x = 0; x + next < width; x++)
    to[size_t(x) * unit() + words_] ^= to[size_t(x + next) * unit() + words_ - 1];
}

}  // namespace bitedge
