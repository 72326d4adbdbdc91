// Shape inference: one node of the file becomes one checked node of the graph, and its outputs become values.
#pragma once

#include "file/attributes.h"
#include "file/tensors.h"
#include "graph/graph.h"

namespace bitedge {

const char* kind_name(Kind kind);
const char* step_name(StepKind kind);

// Multiply-accumulates of one image; 0 for everything but the convolutions.
uint64_t node_macs(const Graph& graph, const Node& node);

// Reads node `index` of a file of this version, refuses it if it breaks any rule of docs/format.md, and appends it and
// its values to the graph.
void infer_node(Graph& graph, uint32_t version, uint32_t index, Attributes& attributes, Tensors& tensors);

}  // namespace bitedge
