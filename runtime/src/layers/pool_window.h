// A node with windows as the kernels take it: poolings, and convolutions in groups of few channels.
#pragma once

#include "graph/graph.h"
#include "kernels/kernels.h"

namespace bitedge {

// All but the rows.
inline Windows windows_of(const Graph& graph, const Node& node) {
  const Shape& in = graph.values[size_t(node.inputs[0])].shape;
  const Window& w = node.window;
  Windows made;
  made.in_h = in.height;
  made.in_w = in.width;
  made.out_w = graph.values[size_t(node.outputs[0])].shape.width;
  made.kernel_h = w.kernel_h;
  made.kernel_w = w.kernel_w;
  made.stride_h = w.stride_h;
  made.stride_w = w.stride_w;
  made.pad_top = w.pad_top;
  made.pad_left = w.pad_left;
  made.dilation_h = w.dilation_h;
  made.dilation_w = w.dilation_w;
  return made;
}

// All but the pointers and the rows.
inline Pool2d pool_window(const Graph& graph, const Node& node) {
  const Value& in = graph.values[size_t(node.inputs[0])];
  Pool2d p;
  static_cast<Windows&>(p) = windows_of(graph, node);
  p.lanes = in.kind == Kind::kBits ? int32_t(in.shape.words()) : in.shape.channels;
  p.in_pitch = p.out_pitch = p.lanes;
  p.count_include_pad = node.count_include_pad;
  p.counted_h = in.shape.height + node.window.pad_bottom - node.overhang_bottom;
  p.counted_w = in.shape.width + node.window.pad_right - node.overhang_right;
  p.minimum = node.bits.data;
  return p;
}

}  // namespace bitedge
