// The graph as the reader leaves it: checked, typed, with every shape known. docs/format.md is its specification.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/view.h"

namespace bitedge {

enum class Kind : uint8_t { kUint8, kFloat, kBits };

struct Shape {
  int32_t height = 0, width = 0, channels = 0;
  size_t pixels() const { return size_t(height) * size_t(width); }
  size_t elements() const { return pixels() * size_t(channels); }
  size_t words() const { return (size_t(channels) + 63) / 64; }  // packed words of one pixel
};

struct Value {
  std::string name;
  Kind kind = Kind::kFloat;
  Shape shape;
};

enum class Op : uint8_t {
  kNormalize,
  kImageConv2d,
  kBinaryConv2d,
  kConv2d,
  kElementwise,
  kMaxPool2d,
  kAvgPool2d,
  kLayerNorm,
  kSoftmax,
};

// Kernel, stride, pads, dilation and groups of a convolution or a pooling.
struct Window {
  int32_t kernel_h = 1, kernel_w = 1;
  int32_t stride_h = 1, stride_w = 1;
  int32_t pad_top = 0, pad_left = 0, pad_bottom = 0, pad_right = 0;
  int32_t dilation_h = 1, dilation_w = 1;
  int32_t groups = 1;
};

enum class Activation : uint8_t { kNone, kRelu, kPrelu };

// What happens to an accumulator on its way out: either one integer threshold, or
// fma(acc, scale, bias), + residual, activation, in that order.
struct Epilogue {
  View<int32_t> threshold;  // set: bits out, +1 iff acc >= threshold
  View<float> scale, bias;  // both or neither
  View<float> slope;        // of prelu: one per channel, or one
  Activation activation = Activation::kNone;
  bool emit_float = false, emit_bits = false;
};

struct Node {
  Op op = Op::kElementwise;
  std::vector<int32_t> inputs;   // value indices; a second one is the residual
  std::vector<int32_t> outputs;  // value indices; float before bits
  Window window;
  int32_t pad_value = 0;  // of binary_conv2d
  bool count_include_pad = false;
  float eps = 0;
  View<uint64_t> bits;     // weight of the integer convolutions; min_channels of a bit pool
  View<float> weight_f32;  // of conv2d (exactly one of the two) and layer_norm
  View<uint16_t> weight_f16;
  View<float> scale, offset;  // of normalize; `offset` is also layer_norm's bias
  Epilogue epilogue;
};

struct Graph {
  std::string name;
  std::vector<Value> values;  // 0 is the input
  std::vector<Node> nodes;    // in an order that can be run
  int32_t output = 0;         // index of the answer
};

}  // namespace bitedge
