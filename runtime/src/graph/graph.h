// The graph as the reader leaves it: checked, typed, with every shape known. docs/format.md is its specification.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/view.h"
#include "graph/step_kind.h"

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
  // Of one image.
  size_t bytes() const {
    if (kind == Kind::kBits) return shape.pixels() * shape.words() * sizeof(uint64_t);
    return shape.elements() * (kind == Kind::kFloat ? sizeof(float) : 1);
  }
};

// Each has one row in the table of operators (graph/operators.h), in this order.
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
  kConcat,
  kGatherChannels,
  kGroupNorm,
  kAdaptiveAvgPool2d,
};

// Kernel, stride, pads, dilation and groups of a convolution or a pooling.
struct Window {
  int32_t kernel_h = 1, kernel_w = 1;
  int32_t stride_h = 1, stride_w = 1;
  int32_t pad_top = 0, pad_left = 0, pad_bottom = 0, pad_right = 0;
  int32_t dilation_h = 1, dilation_w = 1;
  int32_t groups = 1;
};

// One step of an epilogue. What a kind does not use is empty.
struct EpilogueStep {
  StepKind kind = StepKind::kRelu;
  View<float> scale, bias;  // of fma
  View<float> slope;        // of prelu: one per channel, or one
  float min = 0, max = 0;   // of clamp
  size_t input = 0;         // of add and multiply: which of the node's inputs
};

// What happens to an accumulator on its way out: either one integer threshold, or steps, one after the other. The
// `affine` form of the file is fma, add and an activation, as far as they are there.
struct Epilogue {
  View<int32_t> threshold;  // set: bits out, +1 iff acc >= threshold, and there are no steps
  std::vector<EpilogueStep> steps;
  bool emit_float = false, emit_bits = false;
  // Further steps between the floats and the bits: a node of its own in the file, that the program has taken in.
  std::vector<EpilogueStep> steps_to_bits;
};

struct Node {
  Op op = Op::kElementwise;
  std::vector<int32_t> inputs;   // value indices; those after the first are read by the steps of the epilogue
  std::vector<int32_t> outputs;  // value indices; float before bits
  Window window;                 // `groups` is also group_norm's
  int32_t pad_value = 0;         // of binary_conv2d
  bool count_include_pad = false;
  int32_t overhang_bottom = 0, overhang_right = 0;  // of avg_pool2d
  float eps = 0;
  View<uint64_t> bits;     // weight of the integer convolutions; min_channels of a bit pool
  View<float> weight_f32;  // of conv2d (exactly one of the two) and the norms
  View<uint16_t> weight_f16;
  View<float> scale, offset;  // of normalize; `offset` is also the norms' bias
  View<int32_t> index;        // of gather_channels
  Epilogue epilogue;
};

struct Graph {
  std::string name;
  std::vector<Value> values;  // 0 is the input
  std::vector<Node> nodes;    // in an order that can be run
  int32_t output = 0;         // index of the answer
};

}  // namespace bitedge
