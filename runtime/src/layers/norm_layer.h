// group_norm: mean and variance over a whole map, so several passes.
#pragma once

#include <memory>

#include "layers/layer.h"

namespace bitedge {

std::unique_ptr<const Layer> make_norm_layer(const Graph& graph, const Node& node, const KernelSet& kernels);

}  // namespace bitedge
