#include "layers/half_word_map.h"

#include <algorithm>
#include <cstring>

namespace bitedge {
namespace {

// Pairs of half words (a0, a1) to (a0, a0 ^ a1), `count` half words in all: a1 lies above a0 in 64 bits. The last one
// of an odd number has 0 beside it, and so becomes a pair of itself.
void combine(const uint32_t* from, uint32_t* to, size_t count) {
  for (size_t i = 0; i < count; i += 2) {
    uint64_t pair;
    std::memcpy(&pair, from + i, sizeof pair);
    pair ^= pair << 32;
    std::memcpy(to + i, &pair, sizeof pair);
  }
}

}  // namespace

HalfWordMap::HalfWordMap(const Geometry& geometry, Grouping, int32_t pad_value)
    : geometry_(geometry), words_((size_t(geometry.in.channels) + 31) / 32) {
  pad_pixel_.assign(unit(), 0);  // 0 is taken as +1, as everywhere
  if (pad_value >= 0) return;
  std::fill_n(pad_pixel_.begin(), words_, ~uint32_t(0));
  if (geometry.in.channels % 32) pad_pixel_[words_ - 1] = (uint32_t(1) << geometry.in.channels % 32) - 1;
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
  const size_t width = size_t(geometry_.width), first = from ? std::min(size_t(geometry_.left), width) : width;
  const size_t last = std::min(width, first + size_t(geometry_.in.width));
  for (size_t x = 0; x < first; x++) combine(pad_pixel_.data(), to + x * unit(), unit());
  if (from) combine(from, to + first * unit(), (last - first) * unit());
  for (size_t x = last; x < width; x++) combine(pad_pixel_.data(), to + x * unit(), unit());
  if (words_ % 2 == 0) return;
  const size_t next = size_t(geometry_.window.dilation_w);
  for (size_t x = 0; x + next < width; x++) to[x * unit() + words_] ^= to[(x + next) * unit() + words_ - 1];
}

}  // namespace bitedge
