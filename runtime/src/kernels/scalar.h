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
  void* data = nullptr;  // null: no such tensor

  const float* floats() const { return static_cast<const float*>(data); }
  const uint64_t* bits() const { return static_cast<const uint64_t*>(data); }
  // +1 or -1, or the float itself.
  float at(size_t pixel, size_t channel) const;
};

struct Operands {
  Tensor input, residual, first, second;
};

// Computes the output rows [begin, end) of a node for one image.
void run(const Node& node, const Operands& operands, int32_t begin, int32_t end);

// Sums over channels are taken in this order on every instruction set: lane l adds elements l, l + 16, ... in turn,
// then the lanes are folded 8, 4, 2, 1. So they are equal everywhere.
constexpr int kSumLanes = 16;
float sum(const float* x, size_t n);

// exp(x) for x <= 0, to about one unit in the last place; the same operations on every instruction set.
float exp_negative(float x);

float half_to_float(uint16_t half);

}  // namespace bitedge::scalar
