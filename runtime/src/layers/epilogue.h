// A node's epilogue, made ready for the kernels: its kind decided, parameters padded to whole blocks of channels.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "base/aligned.h"
#include "graph/graph.h"
#include "kernels/kernels.h"
#include "layers/layer.h"

namespace bitedge {

class EpilogueBinder {
 public:
  // Whether the weights of the kernel carry the fma that comes first, so that it is left out.
  enum class Leading { kApplied, kFolded };

  EpilogueBinder(const Graph& graph, const Node& node, Leading leading = Leading::kApplied);
  EpilogueBinder(const EpilogueBinder&) = delete;
  EpilogueBinder& operator=(const EpilogueBinder&) = delete;

  // The epilogue for the images of a call from `image` on.
  BoundEpilogue bind(const Call& call, size_t image) const;

  // Kernels write bits in blocks of 16. Clears the rest of the last word of every pixel, where there is one.
  void clear_tails(const Call& call) const;

 private:
  // One value per channel, whole blocks of them. A view of one element holds for all.
  const float* spread(const View<float>& from);
  const float* constant(float value);
  void add_step(const Graph& graph, const Node& node, const EpilogueStep& step);
  EpilogueKind choose_kind();
  EpilogueKind fill_shifts();

  BoundEpilogue bound_;
  std::vector<BoundStep> steps_;
  bool floats_ = false, bits_ = false;
  size_t words_ = 0;
  Aligned<int32_t> threshold_;
  std::deque<Aligned<float>> parameters_;
};

}  // namespace bitedge
