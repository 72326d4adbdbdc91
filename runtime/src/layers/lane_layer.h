// Float convolution in groups of few channels, depthwise above all.
#pragma once

#include <memory>

#include "layers/layer.h"

namespace bitedge {

// Null when the groups have so many output channels that blocks of one group are better filled.
std::unique_ptr<const Layer> make_lane_layer(const Graph& graph, const Node& node, const KernelSet& kernels);

}  // namespace bitedge
