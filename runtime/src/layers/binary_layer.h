// Binary convolution: the prepared map, the repacked weights, and the calls to a kernel.
#pragma once

#include <memory>

#include "layers/layer.h"

namespace bitedge {

// Null when the kernel cannot take this node: it then runs by the reference.
std::unique_ptr<const Layer> make_binary_layer(const Graph& graph, const Node& node, const KernelSet& kernels);

}  // namespace bitedge
