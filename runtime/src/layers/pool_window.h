// A pooling node as the kernels take it.
#pragma once

#include "graph/graph.h"
#include "kernels/kernels.h"

namespace bitedge {

// All but the pointers and the rows.
inline Pool2d pool_window(const Graph& graph, const Node& node) {
  const Value& in = graph.values[size_t(node.inputs[0])];
  const Window& w = node.window;
  Pool2d p;
  p.in_h = in.shape.height;
  p.in_w = in.shape.width;
  p.out_w = graph.values[size_t(node.outputs[0])].shape.width;
  p.lanes = in.kind == Kind::kBits ? int32_t(in.shape.words()) : in.shape.channels;
  p.in_pitch = p.out_pitch = p.lanes;
  p.kernel_h = w.kernel_h;
  p.kernel_w = w.kernel_w;
  p.stride_h = w.stride_h;
  p.stride_w = w.stride_w;
  p.pad_top = w.pad_top;
  p.pad_left = w.pad_left;
  p.dilation_h = w.dilation_h;
  p.dilation_w = w.dilation_w;
  p.count_include_pad = node.count_include_pad;
  p.minimum = node.bits.data;
  return p;
}

}  // namespace bitedge
