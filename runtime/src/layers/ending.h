// A node's epilogue, made ready for the kernels: parameters padded to whole blocks of channels.
#pragma once

#include <cstddef>

#include "base/aligned.h"
#include "graph/graph.h"
#include "kernels/kernels.h"
#include "layers/layer.h"

namespace bitedge {

class EndingPlan {
 public:
  EndingPlan(const Graph& graph, const Node& node);

  // Whether kernels can run the node's epilogue.
  static bool covers(const Graph& graph, const Node& node);

  // The epilogue for the images of a call from `image` on.
  Finish bind(const Call& call, size_t image) const;

  // Kernels write bits in blocks of 16. Clears the rest of the last word of every pixel, where there is one.
  void clear_tails(const Call& call) const;

  // For kernels whose weights and biases carry scale and bias already.
  void drop_scale() { finish_.scale = finish_.bias = nullptr; }

  int32_t channels() const { return finish_.channels; }

 private:
  Finish finish_;
  bool floats_ = false, bits_ = false;
  size_t pixels_ = 0, words_ = 0;
  Aligned<int32_t> threshold_;
  Aligned<float> scale_, bias_, slope_;
};

}  // namespace bitedge
