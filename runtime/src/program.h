// A graph made ready to run: one layer per node, its weights repacked for one set of kernels.
//
// A Program is immutable once made. Any number of contexts, each on its own thread, may run it at the same time.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "graph.h"
#include "layer.h"

namespace bitedge {

struct KernelSet;

class Program {
 public:
  // `graph` and the tensors that it views must outlive the program. `kernels` names a row of the kernel table;
  // null takes the best one that this build and this CPU have. Throws Error(kUnavailable) for any other name.
  static std::unique_ptr<const Program> make(const Graph& graph, const char* kernels = nullptr);

  const Graph& graph() const { return graph_; }
  const KernelSet& kernels() const { return kernels_; }
  const Layer& layer(size_t node) const { return *layers_[node]; }

  // Which kernel runs a node, for reports: "avx512vpopcntdq binary_conv2d 4x16", "scalar softmax".
  const char* node_kernel(size_t node) const { return layers_[node]->kernel(); }

 private:
  Program(const Graph& graph, const KernelSet& kernels);

  const Graph& graph_;
  const KernelSet& kernels_;
  std::vector<std::unique_ptr<const Layer>> layers_;
};

}  // namespace bitedge
