#include "kernels/scalar.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace bitedge::scalar {

float Tensor::at(size_t pixel, size_t channel) const {
  if (kind == Kind::kFloat) return floats()[pixel * size_t(shape.channels) + channel];
  return (bits()[pixel * shape.words() + channel / 64] >> (channel % 64)) & 1 ? -1.0f : 1.0f;
}

float half_to_float(uint16_t half) {
  const uint32_t sign = uint32_t(half & 0x8000) << 16;
  const uint32_t exponent = (half >> 10) & 31, mantissa = half & 0x3ff;
  if (exponent == 0) {  // zero or subnormal: a multiple of 2^-24
    const float magnitude = float(mantissa) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  const uint32_t word = sign | (exponent == 31 ? 0x7f800000 : (exponent + 112) << 23) | mantissa << 13;
  float value;
  std::memcpy(&value, &word, sizeof value);
  return value;
}

float sum(const float* x, size_t n) {
  float lanes[kSumLanes] = {};
  for (size_t i = 0; i < n; i++) lanes[i % kSumLanes] += x[i];
  for (int half = kSumLanes / 2; half > 0; half /= 2) {
    for (int l = 0; l < half; l++) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

float exp_negative(float x) {
  // exp(x) = 2^n · exp(r), n = round(x / ln 2), |r| <= ln 2 / 2; ln 2 in two parts, the first exact in products with n.
  if (!(x >= -87.0f)) return x < 0 ? 0.0f : x;  // below: rounds to nothing next to exp(0) = 1; NaN stays
  const float n = std::nearbyint(x * 1.44269504f);
  float r = std::fma(n, -0.693145752f, x);
  r = std::fma(n, -1.42860677e-6f, r);
  float p = 1.98756915e-4f;
  for (float c : {1.39819995e-3f, 8.33345205e-3f, 4.16657962e-2f, 1.66666657e-1f, 0.5f, 1.0f, 1.0f})
    p = std::fma(p, r, c);
  const uint32_t bits = uint32_t(int32_t(n) + 127) << 23;
  float power;
  std::memcpy(&power, &bits, sizeof power);
  return p * power;
}

namespace {

void put_bit(const Tensor& out, size_t pixel, size_t channel, bool negative) {
  uint64_t* word = static_cast<uint64_t*>(out.data) + pixel * out.shape.words() + channel / 64;
  if (channel % 64 == 0) *word = 0;
  *word |= uint64_t(negative) << (channel % 64);
}

// The affine epilogue, from the accumulator on.
void finish(const Node& node, const Operands& o, size_t pixel, size_t c, float y) {
  const Epilogue& e = node.epilogue;
  const size_t channels = size_t(o.first.shape.channels);
  if (e.scale) y = std::fma(y, e.scale[c], e.bias[c]);
  if (o.residual.data) y += o.residual.at(pixel, c);
  if (e.activation == Activation::kRelu && y < 0) y = 0;
  if (e.activation == Activation::kPrelu && y < 0) y *= e.slope[e.slope.size == 1 ? 0 : c];
  if (e.emit_float) static_cast<float*>(o.first.data)[pixel * channels + c] = y;
  if (e.emit_bits) put_bit(e.emit_float ? o.second : o.first, pixel, c, y < 0);
}

void finish(const Node& node, const Operands& o, size_t pixel, size_t c, int32_t acc) {
  if (node.epilogue.threshold) return put_bit(o.first, pixel, c, acc < node.epilogue.threshold[c]);
  finish(node, o, pixel, c, float(acc));
}

// The sum over a window: calls tap(input pixel, or -1 for padding; index of the tap) for every tap of output (y, x).
template <typename Tap>
void for_taps(const Window& w, const Shape& in, int32_t y, int32_t x, const Tap& tap) {
  for (int32_t ky = 0; ky < w.kernel_h; ky++) {
    for (int32_t kx = 0; kx < w.kernel_w; kx++) {
      const int64_t iy = int64_t(y) * w.stride_h - w.pad_top + int64_t(ky) * w.dilation_h;
      const int64_t ix = int64_t(x) * w.stride_w - w.pad_left + int64_t(kx) * w.dilation_w;
      const bool inside = iy >= 0 && iy < in.height && ix >= 0 && ix < in.width;
      tap(inside ? iy * in.width + ix : int64_t(-1), size_t(ky) * size_t(w.kernel_w) + size_t(kx));
    }
  }
}

// Calls each(y, x, pixel) for the output pixels of the rows [begin, end).
template <typename Each>
void for_pixels(const Shape& out, int32_t begin, int32_t end, const Each& each) {
  for (int32_t y = begin; y < end; y++) {
    for (int32_t x = 0; x < out.width; x++) each(y, x, size_t(y) * size_t(out.width) + size_t(x));
  }
}

void normalize(const Node& node, const Operands& o, int32_t begin, int32_t end) {
  const size_t channels = size_t(o.input.shape.channels), row = size_t(o.input.shape.width) * channels;
  const uint8_t* in = static_cast<const uint8_t*>(o.input.data);
  float* out = static_cast<float*>(o.first.data);
  for (size_t i = size_t(begin) * row; i < size_t(end) * row; i++) {
    out[i] = std::fma(float(in[i]), node.scale[i % channels], node.offset[i % channels]);
  }
}

// acc = Σ w·a in integers. A tap that is padding contributes 0, or I/groups - 2·popcount(pad xor w) of the pad value.
void binary_conv2d(const Node& node, const Operands& o, int32_t begin, int32_t end) {
  const Window& w = node.window;
  const size_t outputs = size_t(o.first.shape.channels), taps = size_t(w.kernel_h) * size_t(w.kernel_w);
  const size_t depth = size_t(o.input.shape.channels / w.groups), words = (depth + 63) / 64;
  for_pixels(o.first.shape, begin, end, [&](int32_t y, int32_t x, size_t pixel) {
    for (size_t c = 0; c < outputs; c++) {
      const size_t first = c / (outputs / size_t(w.groups)) * depth;  // input channel where the group starts
      int32_t acc = 0;
      for_taps(w, o.input.shape, y, x, [&](int64_t at, size_t tap) {
        if (at < 0 && node.pad_value == 0) return;
        const uint64_t* weight = &node.bits[(c * taps + tap) * words];
        for (size_t i = 0; i < depth; i += 64) {
          const size_t n = std::min(depth - i, size_t(64));
          uint64_t a = node.pad_value < 0 ? ~uint64_t(0) : 0;
          if (at >= 0) {  // 64 bits from channel first + i on, which may straddle two words
            const uint64_t* from = o.input.bits() + size_t(at) * o.input.shape.words() + (first + i) / 64;
            const size_t shift = (first + i) % 64;
            a = from[0] >> shift;
            if (shift + n > 64) a |= from[1] << (64 - shift);
          }
          const uint64_t mask = n == 64 ? ~uint64_t(0) : (uint64_t(1) << n) - 1;
          acc += int32_t(n) - 2 * __builtin_popcountll((a ^ weight[i / 64]) & mask);
        }
      });
      finish(node, o, pixel, c, acc);
    }
  });
}

// acc = Σ w·(2u - 255) in integers; padding contributes 0.
void image_conv2d(const Node& node, const Operands& o, int32_t begin, int32_t end) {
  const Window& w = node.window;
  const size_t outputs = size_t(o.first.shape.channels), taps = size_t(w.kernel_h) * size_t(w.kernel_w);
  const size_t inputs = size_t(o.input.shape.channels), depth = inputs / size_t(w.groups), words = (depth + 63) / 64;
  const uint8_t* image = static_cast<const uint8_t*>(o.input.data);
  for_pixels(o.first.shape, begin, end, [&](int32_t y, int32_t x, size_t pixel) {
    for (size_t c = 0; c < outputs; c++) {
      const size_t first = c / (outputs / size_t(w.groups)) * depth;
      int32_t acc = 0;
      for_taps(w, o.input.shape, y, x, [&](int64_t at, size_t tap) {
        if (at < 0) return;
        const uint64_t* weight = &node.bits[(c * taps + tap) * words];
        for (size_t i = 0; i < depth; i++) {
          const int32_t value = 2 * int32_t(image[size_t(at) * inputs + first + i]) - 255;
          acc += (weight[i / 64] >> (i % 64)) & 1 ? -value : value;
        }
      });
      finish(node, o, pixel, c, acc);
    }
  });
}

// One chain of fused multiply-adds per output, over the taps in order: equal on every instruction set.
void conv2d(const Node& node, const Operands& o, int32_t begin, int32_t end) {
  const Window& w = node.window;
  const size_t outputs = size_t(o.first.shape.channels), taps = size_t(w.kernel_h) * size_t(w.kernel_w);
  const size_t inputs = size_t(o.input.shape.channels), depth = inputs / size_t(w.groups);
  for_pixels(o.first.shape, begin, end, [&](int32_t y, int32_t x, size_t pixel) {
    for (size_t c = 0; c < outputs; c++) {
      const size_t first = c / (outputs / size_t(w.groups)) * depth;
      float acc = 0;
      for_taps(w, o.input.shape, y, x, [&](int64_t at, size_t tap) {
        if (at < 0) return;
        const float* in = o.input.floats() + size_t(at) * inputs + first;
        const size_t weight = (c * taps + tap) * depth;
        for (size_t i = 0; i < depth; i++) {
          acc = std::fma(
              in[i], node.weight_f32 ? node.weight_f32[weight + i] : half_to_float(node.weight_f16[weight + i]), acc);
        }
      });
      finish(node, o, pixel, c, acc);
    }
  });
}

void elementwise(const Node& node, const Operands& o, int32_t begin, int32_t end) {
  for_pixels(o.first.shape, begin, end, [&](int32_t, int32_t, size_t pixel) {
    for (size_t c = 0; c < size_t(o.first.shape.channels); c++) finish(node, o, pixel, c, o.input.at(pixel, c));
  });
}

void max_pool2d(const Node& node, const Operands& o, int32_t begin, int32_t end) {
  for_pixels(o.first.shape, begin, end, [&](int32_t y, int32_t x, size_t pixel) {
    for (size_t c = 0; c < size_t(o.first.shape.channels); c++) {
      const bool least = node.bits && (node.bits[c / 64] >> (c % 64)) & 1;
      float best = least ? INFINITY : -INFINITY;
      for_taps(node.window, o.input.shape, y, x, [&](int64_t at, size_t) {
        if (at < 0) return;
        const float value = o.input.at(size_t(at), c);
        if (least ? value < best : value > best) best = value;
      });
      if (o.first.kind == Kind::kBits) {
        put_bit(o.first, pixel, c, best < 0);
      } else {
        // A zero is +0 whichever came first, so that kernels may take the window in any order.
        static_cast<float*>(o.first.data)[pixel * size_t(o.first.shape.channels) + c] = best + 0.0f;
      }
    }
  });
}

void avg_pool2d(const Node& node, const Operands& o, int32_t begin, int32_t end) {
  for_pixels(o.first.shape, begin, end, [&](int32_t y, int32_t x, size_t pixel) {
    for (size_t c = 0; c < size_t(o.first.shape.channels); c++) {
      float total = 0;
      int32_t count = 0;
      for_taps(node.window, o.input.shape, y, x, [&](int64_t at, size_t) {
        if (at < 0 && !node.count_include_pad) return;
        count++;
        if (at >= 0) total += o.input.at(size_t(at), c);
      });
      static_cast<float*>(o.first.data)[pixel * size_t(o.first.shape.channels) + c] = total / float(count);
    }
  });
}

void layer_norm(const Node& node, const Operands& o, int32_t begin, int32_t end) {
  const size_t channels = size_t(o.first.shape.channels);
  for_pixels(o.first.shape, begin, end, [&](int32_t, int32_t, size_t pixel) {
    const float* in = o.input.floats() + pixel * channels;
    float* out = static_cast<float*>(o.first.data) + pixel * channels;
    const float mean = sum(in, channels) / float(channels);
    for (size_t c = 0; c < channels; c++) out[c] = (in[c] - mean) * (in[c] - mean);
    const float inverse = 1.0f / std::sqrt(sum(out, channels) / float(channels) + node.eps);
    for (size_t c = 0; c < channels; c++)
      out[c] = std::fma((in[c] - mean) * inverse, node.weight_f32[c], node.offset[c]);
  });
}

void softmax(const Node&, const Operands& o, int32_t begin, int32_t end) {
  const size_t channels = size_t(o.first.shape.channels);
  for_pixels(o.first.shape, begin, end, [&](int32_t, int32_t, size_t pixel) {
    const float* in = o.input.floats() + pixel * channels;
    float* out = static_cast<float*>(o.first.data) + pixel * channels;
    const float most = *std::max_element(in, in + channels);
    for (size_t c = 0; c < channels; c++) out[c] = exp_negative(in[c] - most);
    const float total = sum(out, channels);
    for (size_t c = 0; c < channels; c++) out[c] /= total;
  });
}

}  // namespace

void run(const Node& node, const Operands& operands, int32_t begin, int32_t end) {
  // In the order of Op.
  constexpr void (*kOperators[])(const Node&, const Operands&, int32_t, int32_t) = {
      normalize, image_conv2d, binary_conv2d, conv2d, elementwise, max_pool2d, avg_pool2d, layer_norm, softmax};
  kOperators[size_t(node.op)](node, operands, begin, end);
}

}  // namespace bitedge::scalar
