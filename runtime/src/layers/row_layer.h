// The nodes without weights to repack: poolings, elementwise, normalize, layer norm, softmax.
#pragma once

#include <memory>

#include "layers/layer.h"

namespace bitedge {

std::unique_ptr<const Layer> make_row_layer(const Graph& graph, const Node& node, const KernelSet& kernels);

}  // namespace bitedge
