#include "program.h"

#include "../kernels/table.h"

namespace bitedge {

std::unique_ptr<const Program> Program::make(const Graph& graph, const char* kernels) {
  return std::unique_ptr<const Program>(new Program(graph, select_kernels(kernels)));
}

Program::Program(const Graph& graph, const KernelSet& kernels) : graph_(graph), kernels_(kernels) {
  layers_.reserve(graph.nodes.size());
  for (const Node& node : graph.nodes) layers_.push_back(make_layer(graph, node, kernels));
}

}  // namespace bitedge
