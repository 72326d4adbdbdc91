#include "graph/infer.h"

#include "graph/inference.h"

namespace bitedge {

const char* kind_name(Kind kind) { return kind == Kind::kUint8 ? "uint8" : kind == Kind::kFloat ? "float32" : "bits"; }

uint64_t node_macs(const Graph& graph, const Node& node) {
  if (node.op != Op::kImageConv2d && node.op != Op::kBinaryConv2d && node.op != Op::kConv2d) return 0;
  const Window& w = node.window;
  const auto in = static_cast<uint64_t>(graph.values[static_cast<size_t>(node.inputs[0])].shape.channels / w.groups);
  const Shape& out = graph.values[static_cast<size_t>(node.outputs[0])].shape;
  return out.elements() * in * static_cast<uint64_t>(w.kernel_h) * static_cast<uint64_t>(w.kernel_w);
}

void infer_node(Graph& graph, uint32_t version, uint32_t index, Attributes& attributes, Tensors& tensors) {
  Inference(graph, version, index, attributes, tensors).run();
}

}  // namespace bitedge
