#include "layers/geometry.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "base/budget.h"

namespace bitedge {
namespace {

// The taps [first, second) of output position `i` that fall on the image, along one axis.
std::pair<int32_t, int32_t> real_taps(int32_t i, int32_t stride, int32_t pad, int32_t kernel, int32_t dilation,
                                      int32_t size) {
  const int64_t start = int64_t(i) * stride - pad;
  const int64_t first = start < 0 ? (-start + dilation - 1) / dilation : 0;
  const int64_t last = size - 1 - start < 0 ? -1 : (size - 1 - start) / dilation;
  const int32_t begin = int32_t(std::min<int64_t>(first, kernel));
  return {begin, std::max(begin, int32_t(std::min<int64_t>(last + 1, kernel)))};
}

// Numbers the distinct ranges of taps along one axis, the widest first.
struct Axis {
  std::vector<std::pair<int32_t, int32_t>> ranges;
  std::vector<int32_t> of;  // [position]
};

Axis axis(int32_t count, int32_t stride, int32_t pad, int32_t kernel, int32_t dilation, int32_t size) {
  Axis a;
  std::map<std::pair<int32_t, int32_t>, int32_t> number;
  for (int32_t i = 0; i < count; i++) number[real_taps(i, stride, pad, kernel, dilation, size)] = 0;
  for (const auto& entry : number) a.ranges.push_back(entry.first);
  std::stable_sort(a.ranges.begin(), a.ranges.end(),
                   [](const auto& x, const auto& y) { return x.second - x.first > y.second - y.first; });
  for (size_t i = 0; i < a.ranges.size(); i++) number[a.ranges[i]] = int32_t(i);
  for (int32_t i = 0; i < count; i++) a.of.push_back(number[real_taps(i, stride, pad, kernel, dilation, size)]);
  return a;
}

}  // namespace

Geometry::Geometry(const Window& w, const Shape& input, const Shape& output) : window(w), in(input), out(output) {
  const int64_t rows = int64_t(out.height - 1) * w.stride_h + int64_t(w.kernel_h - 1) * w.dilation_h + 1;
  const int64_t columns = int64_t(out.width - 1) * w.stride_w + int64_t(w.kernel_w - 1) * w.dilation_w + 1;
  padded = w.pad_top > 0 || w.pad_left > 0 || rows > in.height || columns > in.width;
  top = w.pad_top;
  left = w.pad_left;
  height = padded ? int32_t(rows) : in.height;
  width = padded ? int32_t(columns) : in.width;
}

std::vector<int32_t> Geometry::origins(size_t unit) const {
  std::vector<int32_t> table;
  Budget::charge(uint64_t(merged()) * out.pixels() * sizeof(int32_t));
  table.reserve(merged() * out.pixels());
  for (size_t image = 0; image < merged(); image++) {
    for (int32_t y = 0; y < out.height; y++) {
      for (int32_t x = 0; x < out.width; x++) {
        const size_t pixel = image * map_pixels() + at(int64_t(y) * window.stride_h, int64_t(x) * window.stride_w);
        table.push_back(int32_t(pixel * unit));
      }
    }
  }
  return table;
}

std::vector<int32_t> Geometry::taps() const {
  std::vector<int32_t> table;
  for (int32_t y = 0; y < window.kernel_h; y++) {
    for (int32_t x = 0; x < window.kernel_w; x++) {
      table.push_back(int32_t(at(int64_t(y) * window.dilation_h, int64_t(x) * window.dilation_w)));
    }
  }
  return table;
}

Geometry::Classes Geometry::classes() const {
  const Window& w = window;
  const Axis rows = axis(out.height, w.stride_h, w.pad_top, w.kernel_h, w.dilation_h, in.height);
  const Axis columns = axis(out.width, w.stride_w, w.pad_left, w.kernel_w, w.dilation_w, in.width);
  Classes c;
  for (const auto& [y0, y1] : rows.ranges) {
    for (const auto& [x0, x1] : columns.ranges) {
      std::vector<bool> real;
      for (int32_t y = 0; y < w.kernel_h; y++) {
        for (int32_t x = 0; x < w.kernel_w; x++) real.push_back(y >= y0 && y < y1 && x >= x0 && x < x1);
      }
      c.real.push_back(std::move(real));
    }
  }
  Budget::charge(uint64_t(merged()) * out.pixels() * sizeof(int32_t) * 2);  // this one, and the layer's own
  c.of_pixel.reserve(merged() * out.pixels());
  for (size_t image = 0; image < merged(); image++) {
    for (const int32_t row : rows.of) {
      for (const int32_t column : columns.of) c.of_pixel.push_back(row * int32_t(columns.ranges.size()) + column);
    }
  }
  return c;
}

bool Geometry::fits(size_t unit) const {
  constexpr size_t kMost = size_t(std::numeric_limits<int32_t>::max());
  if (map_pixels() > kMost || map_pixels() * merged() > kMost / unit) return false;
  if (map_pixels() > 65536 && map_pixels() / 64 > in.pixels()) return false;
  const Window& w = window;
  const size_t rows = axis(out.height, w.stride_h, w.pad_top, w.kernel_h, w.dilation_h, in.height).ranges.size();
  const size_t columns = axis(out.width, w.stride_w, w.pad_left, w.kernel_w, w.dilation_w, in.width).ranges.size();
  return rows * columns * size_t(w.kernel_h) * size_t(w.kernel_w) <= size_t(1) << 22;
}

}  // namespace bitedge
