// The reference: every operator as docs/format.md words it, for any shape, in plain C++. Every other kernel is compared
// with these, bit for bit. They also run whatever a set of kernels does not cover.
#pragma once

#include <cstddef>
#include <cstdint>

#include "graph/graph.h"

namespace bitedge::scalar {

// One image of a value.
struct Tensor {
  Kind kind = Kind::kFloat;
  Shape shape;
  void* data = nullptr;

  float* floats() const { return static_cast<float*>(data); }
  uint64_t* bits() const { return static_cast<uint64_t*>(data); }
  // +1 or -1, or the float itself.
  float at(size_t pixel, size_t channel) const;
  void put_bit(size_t pixel, size_t channel, bool negative) const;  // channels in order, from 0 on
};

// What a node reads and writes: the values of the graph, where they are, and which image is meant.
class Operands {
 public:
  Operands(const Value* const* inputs, const void* const* input_data, const Value* const* outputs,
           void* const* output_data, size_t image)
      : inputs_(inputs), outputs_(outputs), input_data_(input_data), output_data_(output_data), image_(image) {}

  Tensor input(size_t i) const { return tensor(*inputs_[i], const_cast<void*>(input_data_[i])); }
  Tensor output(size_t i) const { return tensor(*outputs_[i], output_data_[i]); }

 private:
  Tensor tensor(const Value& value, void* data) const {
    return {value.kind, value.shape, static_cast<unsigned char*>(data) + image_ * value.bytes()};
  }

  const Value* const* inputs_;
  const Value* const* outputs_;
  const void* const* input_data_;
  void* const* output_data_;
  size_t image_;
};

// Each computes the output rows [begin, end) of a node for one image.
void normalize(const Node& node, const Operands& operands, int32_t begin, int32_t end);
void image_conv2d(const Node& node, const Operands& operands, int32_t begin, int32_t end);
void binary_conv2d(const Node& node, const Operands& operands, int32_t begin, int32_t end);
void conv2d(const Node& node, const Operands& operands, int32_t begin, int32_t end);
void elementwise(const Node& node, const Operands& operands, int32_t begin, int32_t end);
void max_pool2d(const Node& node, const Operands& operands, int32_t begin, int32_t end);
void avg_pool2d(const Node& node, const Operands& operands, int32_t begin, int32_t end);
void layer_norm(const Node& node, const Operands& operands, int32_t begin, int32_t end);
void softmax(const Node& node, const Operands& operands, int32_t begin, int32_t end);
void concat(const Node& node, const Operands& operands, int32_t begin, int32_t end);
void gather_channels(const Node& node, const Operands& operands, int32_t begin, int32_t end);
void group_norm(const Node& node, const Operands& operands, int32_t begin, int32_t end);  // needs the whole map
void adaptive_avg_pool2d(const Node& node, const Operands& operands, int32_t begin, int32_t end);

// Calls each(y, x, pixel) for the output pixels of the rows [begin, end).
template <typename Each>
void for_pixels(const Shape& out, int32_t begin, int32_t end, const Each& each) {
  for (int32_t y = begin; y < end; y++) {
    for (int32_t x = 0; x < out.width; x++) each(y, x, size_t(y) * size_t(out.width) + size_t(x));
  }
}

// Calls tap(input pixel, or -1 for padding; index of the tap) for every tap of the window of output (y, x).
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

// Sums over channels are taken in this order on every instruction set: lane l adds elements l, l + 16, ... in turn,
// then the lanes are folded 8, 4, 2, 1. So they are equal everywhere.
constexpr int kSumLanes = 16;
float sum(const float* x, size_t n);

// A step without operands: y becomes this.
float apply(const EpilogueStep& step, size_t channel, float y);

float half_to_float(uint16_t half);

}  // namespace bitedge::scalar
