// The layers of `bitedge-bench kernels` that are not binary, and what limits each of them.
#pragma once

#include <string>
#include <vector>

#include "testing/random_node.h"

namespace bitedge {

struct FloatLayerCase {
  std::string name;
  testing::NodeCase node;
  double macs = 0;    // fused multiply-adds that the operator is made of
  double floats = 0;  // that it must read and write, each pass over a map counted
};

std::vector<FloatLayerCase> float_layers();

// The least time for it on one thread, by what was measured: seconds per multiply-add, and per float of a copy between
// maps of this size.
class Roofline {
 public:
  explicit Roofline(const FloatLayerCase& layer);
  void measure();  // one turn; the best of all turns counts
  double seconds() const;

 private:
  const FloatLayerCase& layer_;
  std::vector<float> from_, to_;
  double fma_ = 1e9, copy_ = 1e9;
};

}  // namespace bitedge
