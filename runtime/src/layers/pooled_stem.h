// The first convolution, the pooling behind it, and the sign behind that, a band of rows at a time.
#pragma once

#include <memory>

#include "layers/stem_layer.h"

namespace bitedge {

// `stem` must outlive the layer and be plain(). `pool` reads its output; `sign`, or null, is an elementwise node that
// reads `pool`'s. First output: the pooled map; second: that of `sign`.
std::unique_ptr<const Layer> make_pooled_stem(const Graph& graph, const StemLayer& stem, const Node& pool,
                                              const Node* sign, const KernelSet& kernels);

}  // namespace bitedge
