#include "layers/binary_map.h"

#include <algorithm>
#include <cstring>

namespace bitedge {

BinaryMap::BinaryMap(const Geometry& geometry, Grouping grouping, int32_t pad_value)
    : geometry_(geometry), grouping_(grouping), groups_(size_t(geometry.window.groups)) {
  depth_ = size_t(geometry.in.channels) / groups_;
  words_ = (depth_ + 63) / 64;
  group_unit_ = grouping == Grouping::kRows ? 3 * words_ : words_;
  aligned_ = groups_ == 1 || depth_ % 64 == 0;
  same_ = !geometry.padded && aligned_ && grouping == Grouping::kNone;
  // Padding of zero is taken as +1 here; the convolution's `base` takes it back.
  pad_pixel_.assign(groups_ * words_, pad_value < 0 ? ~uint64_t(0) : 0);
  if (pad_value < 0 && depth_ % 64) {
    for (size_t g = 0; g < groups_; g++) pad_pixel_[g * words_ + words_ - 1] = (uint64_t(1) << depth_ % 64) - 1;
  }
}

// Word `i` of group `group` of a pixel of the input: the group's channels from a word's first bit on.
uint64_t BinaryMap::word(const uint64_t* pixel, size_t group, size_t i) const {
  if (aligned_) return pixel[group * words_ + i];
  const size_t bit = group * depth_ + i * 64, n = std::min(depth_ - i * 64, size_t(64)), shift = bit % 64;
  uint64_t bits = pixel[bit / 64] >> shift;
  if (shift + n > 64) bits |= pixel[bit / 64 + 1] << (64 - shift);
  return n == 64 ? bits : bits & ((uint64_t(1) << n) - 1);
}

void BinaryMap::fill(const uint64_t* image, uint64_t* map, int32_t begin, int32_t end) const {
  const size_t pitch = size_t(geometry_.width) * unit();
  for (int32_t y = begin; y < end; y++) {
    uint64_t* to = map + size_t(y) * pitch;
    grouping_ == Grouping::kRows ? fill_row_triples(image, to, y) : fill_row(image, to, y);
  }
}

// The input's row behind a row of the map; null in the padding above and below.
const uint64_t* BinaryMap::row(const uint64_t* image, int64_t map_row) const {
  const int64_t y = map_row - geometry_.top;
  if (y < 0 || y >= geometry_.in.height) return nullptr;
  return image + size_t(y) * size_t(geometry_.in.width) * geometry_.in.words();
}

void BinaryMap::fill_row(const uint64_t* image, uint64_t* to, int32_t map_row) const {
  const uint64_t* from = row(image, map_row);
  const size_t pixel = unit(), width = size_t(geometry_.width);
  const size_t first = from ? std::min(size_t(geometry_.left), width) : width;  // pixels of padding before the image
  const size_t last = std::min(width, first + size_t(geometry_.in.width));
  const auto pad = [&](size_t x) { std::memcpy(to + x * pixel, pad_pixel_.data(), pixel * sizeof(uint64_t)); };
  for (size_t x = 0; x < first; x++) pad(x);
  if (aligned_) {
    if (last > first) std::memcpy(to + first * pixel, from, (last - first) * pixel * sizeof(uint64_t));
  } else {
    for (size_t x = first; x < last; x++, from += geometry_.in.words()) {
      for (size_t w = 0; w < pixel; w++) to[x * pixel + w] = word(from, w / words_, w % words_);
    }
  }
  for (size_t x = last; x < width; x++) pad(x);
  if (grouping_ != Grouping::kPairs) return;
  for (size_t group = 0; group < width * groups_; group++) {
    uint64_t* words = to + group * words_;
    for (size_t i = 0; i + 1 < words_; i += 2) words[i + 1] ^= words[i];
  }
}

void BinaryMap::fill_row_triples(const uint64_t* image, uint64_t* to, int32_t map_row) const {
  const int64_t step = geometry_.window.dilation_h;
  const uint64_t* rows[3];
  for (int i = 0; i < 3; i++) rows[i] = row(image, map_row + i * step);
  for (int64_t x = 0; x < geometry_.width; x++, to += unit()) {
    const int64_t column = x - geometry_.left;
    const bool inside = column >= 0 && column < geometry_.in.width;
    for (size_t w = 0; w < groups_ * words_; w++) {
      uint64_t a[3];
      for (int i = 0; i < 3; i++) {
        a[i] = pad_pixel_[w];
        if (inside && rows[i]) a[i] = word(rows[i] + size_t(column) * geometry_.in.words(), w / words_, w % words_);
      }
      to[3 * w] = a[0];
      to[3 * w + 1] = a[0] ^ a[1];
      to[3 * w + 2] = ~(a[0] ^ a[1] ^ a[2]);
    }
  }
}

}  // namespace bitedge
