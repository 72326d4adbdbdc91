// The nodes that only move channels: concat and gather_channels.
#pragma once

#include <memory>

#include "layers/layer.h"

namespace bitedge {

std::unique_ptr<const Layer> make_concat_layer(const Graph& graph, const Node& node, const KernelSet& kernels);
std::unique_ptr<const Layer> make_gather_layer(const Graph& graph, const Node& node, const KernelSet& kernels);

}  // namespace bitedge
