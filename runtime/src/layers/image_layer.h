// Convolution of an uint8 image with ±1 weights, in integers.
#pragma once

#include <memory>

#include "layers/layer.h"

namespace bitedge {

// Null when the kernel cannot take this node: it then runs by the reference.
std::unique_ptr<const Layer> make_image_layer(const Graph& graph, const Node& node, const KernelSet& kernels);

}  // namespace bitedge
