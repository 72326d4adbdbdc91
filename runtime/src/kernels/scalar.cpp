#include "kernels/scalar.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "file/limits.h"
#include "kernels/vector_scalar.h"
//
#include "kernels/functions.inl"

namespace bitedge::scalar {

float Tensor::at(size_t pixel, size_t channel) const {
  if (kind == Kind::kFloat) return floats()[pixel * size_t(shape.channels) + channel];
  return (bits()[pixel * shape.words() + channel / 64] >> (channel % 64)) & 1 ? -1.0f : 1.0f;
}

void Tensor::put_bit(size_t pixel, size_t channel, bool negative) const {
  uint64_t* word = bits() + pixel * shape.words() + channel / 64;
  if (channel % 64 == 0) *word = 0;
  *word |= uint64_t(negative) << (channel % 64);
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

float apply(const EpilogueStep& step, size_t c, float y) {
  switch (step.kind) {
    case StepKind::kFma:
      return std::fma(y, step.scale[c], step.bias[c]);
    case StepKind::kRelu:
      return y < 0 ? 0 : y;
    case StepKind::kPrelu:
      return y < 0 ? step.slope[step.slope.size == 1 ? 0 : c] * y : y;
    case StepKind::kClamp:
      return y < step.min ? step.min : y > step.max ? step.max : y;
    case StepKind::kHardsigmoid:
      return hardsigmoid(y);
    case StepKind::kHardswish:
      return hardswish(y);
    case StepKind::kSigmoid:
      return sigmoid(y);
    case StepKind::kTanh:
      return tanh_of(y);
    case StepKind::kSilu:
      return silu(y);
    case StepKind::kGelu:
      return gelu(y);
    case StepKind::kGeluTanh:
      return gelu_tanh(y);
    case StepKind::kAdd:
    case StepKind::kMultiply:
      break;  // need an operand
  }
  return y;
}

namespace {

// The epilogue of one node and image, from the accumulator on.
class Finish {
 public:
  Finish(const Node& node, const Operands& o) : epilogue_(node.epilogue), first_(o.output(0)), second_(first_) {
    if (node.outputs.size() > 1) second_ = o.output(1);
    for (size_t k = 0; k < epilogue_.steps.size(); k++) {
      if (epilogue_.steps[k].input) operands_[k] = o.input(epilogue_.steps[k].input);
    }
  }

  void put(size_t pixel, size_t c, float y) const {
    for (size_t k = 0; k < epilogue_.steps.size(); k++) {
      const EpilogueStep& step = epilogue_.steps[k];
      if (step.kind == StepKind::kAdd) {
        y += operands_[k].at(pixel, c);
      } else if (step.kind == StepKind::kMultiply) {
        y *= operands_[k].at(operands_[k].shape.pixels() == 1 ? 0 : pixel, c);
      } else {
        y = apply(step, c, y);
      }
    }
    if (epilogue_.emit_float) first_.floats()[pixel * size_t(first_.shape.channels) + c] = y;
    for (const EpilogueStep& step : epilogue_.steps_to_bits) y = apply(step, c, y);
    if (epilogue_.emit_bits) second_.put_bit(pixel, c, y < 0);
  }

  void put(size_t pixel, size_t c, int32_t acc) const {
    if (epilogue_.threshold) return first_.put_bit(pixel, c, acc < epilogue_.threshold[c]);
    put(pixel, c, float(acc));
  }

 private:
  const Epilogue& epilogue_;
  Tensor first_, second_;  // floats before bits; the same one when there is only one
  Tensor operands_[limits::kSteps];
};

}  // namespace

// acc = Σ w·a in integers. A tap that is padding contributes 0, or I/groups - 2·popcount(pad xor w) of the pad value.
void binary_conv2d(const Node& node, const Operands& o, int32_t begin, int32_t end) {
  const Tensor in = o.input(0), out = o.output(0);
  const Window& w = node.window;
  const size_t outputs = size_t(out.shape.channels), taps = size_t(w.kernel_h) * size_t(w.kernel_w);
  const size_t depth = size_t(in.shape.channels / w.groups), words = (depth + 63) / 64;
  const Finish finish(node, o);
  for_pixels(out.shape, begin, end, [&](int32_t y, int32_t x, size_t pixel) {
    for (size_t c = 0; c < outputs; c++) {
      const size_t first = c / (outputs / size_t(w.groups)) * depth;  // input channel where the group starts
      int32_t acc = 0;
      for_taps(w, in.shape, y, x, [&](int64_t at, size_t tap) {
        if (at < 0 && node.pad_value == 0) return;
        const uint64_t* weight = &node.bits[(c * taps + tap) * words];
        for (size_t i = 0; i < depth; i += 64) {
          const size_t n = std::min(depth - i, size_t(64));
          uint64_t a = node.pad_value < 0 ? ~uint64_t(0) : 0;
          if (at >= 0) {  // 64 bits from channel first + i on, which may straddle two words
            const uint64_t* from = in.bits() + size_t(at) * in.shape.words() + (first + i) / 64;
            const size_t shift = (first + i) % 64;
            a = from[0] >> shift;
            if (shift + n > 64) a |= from[1] << (64 - shift);
          }
          const uint64_t mask = n == 64 ? ~uint64_t(0) : (uint64_t(1) << n) - 1;
          acc += int32_t(n) - 2 * __builtin_popcountll((a ^ weight[i / 64]) & mask);
        }
      });
      finish.put(pixel, c, acc);
    }
  });
}

// acc = Σ w·(2u - 255) in integers; padding contributes 0.
void image_conv2d(const Node& node, const Operands& o, int32_t begin, int32_t end) {
  const Tensor in = o.input(0), out = o.output(0);
  const Window& w = node.window;
  const size_t outputs = size_t(out.shape.channels), taps = size_t(w.kernel_h) * size_t(w.kernel_w);
  const size_t inputs = size_t(in.shape.channels), depth = inputs / size_t(w.groups), words = (depth + 63) / 64;
  const uint8_t* image = static_cast<const uint8_t*>(in.data);
  const Finish finish(node, o);
  for_pixels(out.shape, begin, end, [&](int32_t y, int32_t x, size_t pixel) {
    for (size_t c = 0; c < outputs; c++) {
      const size_t first = c / (outputs / size_t(w.groups)) * depth;
      int32_t acc = 0;
      for_taps(w, in.shape, y, x, [&](int64_t at, size_t tap) {
        if (at < 0) return;
        const uint64_t* weight = &node.bits[(c * taps + tap) * words];
        for (size_t i = 0; i < depth; i++) {
          const int32_t value = 2 * int32_t(image[size_t(at) * inputs + first + i]) - 255;
          acc += (weight[i / 64] >> (i % 64)) & 1 ? -value : value;
        }
      });
      finish.put(pixel, c, acc);
    }
  });
}

// One chain of fused multiply-adds per output, over the taps in order: equal on every instruction set.
void conv2d(const Node& node, const Operands& o, int32_t begin, int32_t end) {
  const Tensor in = o.input(0), out = o.output(0);
  const Window& w = node.window;
  const size_t outputs = size_t(out.shape.channels), taps = size_t(w.kernel_h) * size_t(w.kernel_w);
  const size_t inputs = size_t(in.shape.channels), depth = inputs / size_t(w.groups);
  const Finish finish(node, o);
  for_pixels(out.shape, begin, end, [&](int32_t y, int32_t x, size_t pixel) {
    for (size_t c = 0; c < outputs; c++) {
      const size_t first = c / (outputs / size_t(w.groups)) * depth;
      float acc = 0;
      for_taps(w, in.shape, y, x, [&](int64_t at, size_t tap) {
        if (at < 0) return;
        const float* from = in.floats() + size_t(at) * inputs + first;
        const size_t weight = (c * taps + tap) * depth;
        for (size_t i = 0; i < depth; i++) {
          acc = std::fma(
              from[i], node.weight_f32 ? node.weight_f32[weight + i] : half_to_float(node.weight_f16[weight + i]), acc);
        }
      });
      finish.put(pixel, c, acc);
    }
  });
}

void elementwise(const Node& node, const Operands& o, int32_t begin, int32_t end) {
  const Tensor in = o.input(0);
  const Finish finish(node, o);
  for_pixels(in.shape, begin, end, [&](int32_t, int32_t, size_t pixel) {
    for (size_t c = 0; c < size_t(in.shape.channels); c++) finish.put(pixel, c, in.at(pixel, c));
  });
}

}  // namespace bitedge::scalar
