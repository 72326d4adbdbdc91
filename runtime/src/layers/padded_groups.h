// A convolution in groups that do not fill blocks of 16 output channels: each group is filled up with channels of
// weight 0, the sums go to memory, and the epilogue follows in a pass of its own.
#pragma once

#include <memory>

#include "layers/layer.h"

namespace bitedge {

using MakeLayer = std::unique_ptr<const Layer> (*)(const Graph&, const Node&, const KernelSet&);

// `make` makes the layer of the filled groups. Null when it does not, or when most channels would be filling.
std::unique_ptr<const Layer> make_padded_groups(const Graph& graph, const Node& node, const KernelSet& kernels,
                                                MakeLayer make);

}  // namespace bitedge
