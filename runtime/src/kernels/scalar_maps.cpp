// The reference of the operators without weights to multiply with.
#include <algorithm>
#include <cmath>

#include "kernels/scalar.h"
#include "kernels/vector_scalar.h"
//
#include "kernels/functions.inl"

namespace bitedge::scalar {
namespace {

void put(const Tensor& out, size_t pixel, size_t channel, float value) {
  if (out.kind == Kind::kBits) return out.put_bit(pixel, channel, value < 0);
  out.floats()[pixel * size_t(out.shape.channels) + channel] = value;
}

}  // namespace

float sum(const float* x, size_t n) {
  float lanes[kSumLanes] = {};
  for (size_t i = 0; i < n; i++) lanes[i % kSumLanes] += x[i];
  for (int half = kSumLanes / 2; half > 0; half /= 2) {
    for (int l = 0; l < half; l++) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

void normalize(const Node& node, const Operands& o, int32_t begin, int32_t end) {
  const Tensor in = o.input(0), out = o.output(0);
  const size_t channels = size_t(in.shape.channels), row = size_t(in.shape.width) * channels;
  const uint8_t* from = static_cast<const uint8_t*>(in.data);
  for (size_t i = size_t(begin) * row; i < size_t(end) * row; i++) {
    out.floats()[i] = std::fma(float(from[i]), node.scale[i % channels], node.offset[i % channels]);
  }
}

void max_pool2d(const Node& node, const Operands& o, int32_t begin, int32_t end) {
  const Tensor in = o.input(0), out = o.output(0);
  for_pixels(out.shape, begin, end, [&](int32_t y, int32_t x, size_t pixel) {
    for (size_t c = 0; c < size_t(out.shape.channels); c++) {
      const bool least = node.bits && (node.bits[c / 64] >> (c % 64)) & 1;
      float best = least ? INFINITY : -INFINITY;
      for_taps(node.window, in.shape, y, x, [&](int64_t at, size_t) {
        if (at < 0) return;
        const float value = in.at(size_t(at), c);
        if (least ? value < best : value > best) best = value;
      });
      if (out.kind == Kind::kBits) {
        out.put_bit(pixel, c, best < 0);
      } else {
        // A zero is +0 whichever came first, so that kernels may take the window in any order.
        out.floats()[pixel * size_t(out.shape.channels) + c] = best + 0.0f;
      }
    }
  });
}

// The mean of a window: padding counts in the divisor or not, overhang never does.
void avg_pool2d(const Node& node, const Operands& o, int32_t begin, int32_t end) {
  const Tensor in = o.input(0), out = o.output(0);
  const Window& w = node.window;
  const int64_t counted_h = int64_t(in.shape.height) + w.pad_bottom - node.overhang_bottom;
  const int64_t counted_w = int64_t(in.shape.width) + w.pad_right - node.overhang_right;
  for_pixels(out.shape, begin, end, [&](int32_t y, int32_t x, size_t pixel) {
    const int64_t rows = std::min(int64_t(w.kernel_h), counted_h - (int64_t(y) * w.stride_h - w.pad_top));
    const int64_t columns = std::min(int64_t(w.kernel_w), counted_w - (int64_t(x) * w.stride_w - w.pad_left));
    for (size_t c = 0; c < size_t(out.shape.channels); c++) {
      float total = 0;
      int64_t count = 0;
      for_taps(w, in.shape, y, x, [&](int64_t at, size_t) {
        if (at < 0) return;
        count++;
        total += in.at(size_t(at), c);
      });
      if (node.count_include_pad) count = rows * columns;
      out.floats()[pixel * size_t(out.shape.channels) + c] = total / float(count);
    }
  });
}

// Row i is the mean of the rows from floor(i·H / size) up to ceil((i + 1)·H / size), columns alike.
void adaptive_avg_pool2d(const Node&, const Operands& o, int32_t begin, int32_t end) {
  const Tensor in = o.input(0), out = o.output(0);
  const auto first = [](int64_t i, int64_t from, int64_t to) { return i * from / to; };
  const auto last = [](int64_t i, int64_t from, int64_t to) { return ((i + 1) * from + to - 1) / to; };
  const int64_t height = in.shape.height, width = in.shape.width;
  for_pixels(out.shape, begin, end, [&](int32_t y, int32_t x, size_t pixel) {
    const int64_t top = first(y, height, out.shape.height), bottom = last(y, height, out.shape.height);
    const int64_t left = first(x, width, out.shape.width), right = last(x, width, out.shape.width);
    for (size_t c = 0; c < size_t(out.shape.channels); c++) {
      float total = 0;
      for (int64_t i = top; i < bottom; i++) {
        for (int64_t j = left; j < right; j++) total += in.at(size_t(i * width + j), c);
      }
      out.floats()[pixel * size_t(out.shape.channels) + c] = total / float((bottom - top) * (right - left));
    }
  });
}

void layer_norm(const Node& node, const Operands& o, int32_t begin, int32_t end) {
  const Tensor in = o.input(0), out = o.output(0);
  const size_t channels = size_t(out.shape.channels);
  for_pixels(out.shape, begin, end, [&](int32_t, int32_t, size_t pixel) {
    const float* x = in.floats() + pixel * channels;
    float* y = out.floats() + pixel * channels;
    const float mean = sum(x, channels) / float(channels);
    for (size_t c = 0; c < channels; c++) y[c] = (x[c] - mean) * (x[c] - mean);
    const float inverse = 1.0f / std::sqrt(sum(y, channels) / float(channels) + node.eps);
    for (size_t c = 0; c < channels; c++) y[c] = std::fma((x[c] - mean) * inverse, node.weight_f32[c], node.offset[c]);
  });
}

void softmax(const Node&, const Operands& o, int32_t begin, int32_t end) {
  const Tensor in = o.input(0), out = o.output(0);
  const size_t channels = size_t(out.shape.channels);
  for_pixels(out.shape, begin, end, [&](int32_t, int32_t, size_t pixel) {
    const float* x = in.floats() + pixel * channels;
    float* y = out.floats() + pixel * channels;
    const float most = *std::max_element(x, x + channels);
    for (size_t c = 0; c < channels; c++) y[c] = exp_negative(x[c] - most);
    const float total = sum(y, channels);
    for (size_t c = 0; c < channels; c++) y[c] /= total;
  });
}

void concat(const Node& node, const Operands& o, int32_t begin, int32_t end) {
  const Tensor out = o.output(0);
  for_pixels(out.shape, begin, end, [&](int32_t, int32_t, size_t pixel) {
    size_t to = 0;
    for (size_t i = 0; i < node.inputs.size(); i++) {
      const Tensor in = o.input(i);
      for (size_t c = 0; c < size_t(in.shape.channels); c++) put(out, pixel, to++, in.at(pixel, c));
    }
  });
}

void gather_channels(const Node& node, const Operands& o, int32_t begin, int32_t end) {
  const Tensor in = o.input(0), out = o.output(0);
  for_pixels(out.shape, begin, end, [&](int32_t, int32_t, size_t pixel) {
    for (size_t c = 0; c < node.index.size; c++) {
      put(out, pixel, c, node.index[c] < 0 ? 0.0f : in.at(pixel, size_t(node.index[c])));
    }
  });
}

// Σ over a map of one channel: each row on its own, then the rows in turn. A group adds its channels as sum() adds. So
// kernels take sixteen channels at a time, whatever the groups.
void group_norm(const Node& node, const Operands& o, int32_t, int32_t) {
  const Tensor in = o.input(0), out = o.output(0);
  const size_t channels = size_t(in.shape.channels), size = channels / size_t(node.window.groups);
  const float count = float(in.shape.pixels() * size);
  const auto sum_of = [&](size_t c, float mean, bool squares) {
    float total = 0;
    for (int32_t y = 0; y < in.shape.height; y++) {
      float row = 0;
      for (size_t i = size_t(y) * size_t(in.shape.width); i < size_t(y + 1) * size_t(in.shape.width); i++) {
        const float x = in.at(i, c), d = x - mean;
        row = squares ? std::fma(d, d, row) : row + x;
      }
      total += row;
    }
    return total;
  };
  // Sums of the channels, in the first pixel of the output: it is written last.
  float* sums = out.floats();
  for (size_t first = 0; first < channels; first += size) {
    for (size_t c = first; c < first + size; c++) sums[c] = sum_of(c, 0, false);
    const float mean = sum(sums + first, size) / count;
    for (size_t c = first; c < first + size; c++) sums[c] = sum_of(c, mean, true);
    const float inverse = 1.0f / std::sqrt(sum(sums + first, size) / count + node.eps);
    for (size_t c = first; c < first + size; c++) {
      for (size_t i = in.shape.pixels(); i-- > 0;) {
        out.floats()[i * channels + c] = std::fma((in.at(i, c) - mean) * inverse, node.weight_f32[c], node.offset[c]);
      }
    }
  }
}

}  // namespace bitedge::scalar
