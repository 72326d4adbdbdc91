// A graph made ready to run: one layer per node, its weights repacked for one set of kernels.
//
// A Program is immutable once made. Any number of contexts, each on its own thread, may run it at the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "layers/layer.h"

namespace bitedge {

struct KernelSet;

// One thing to do: a layer and the values that it reads and writes.
struct Step {
  const Layer* layer = nullptr;
  size_t node = 0;  // whose time it is
  std::vector<int32_t> inputs, outputs;
  int32_t in_place = -1;  // a float that is read element by element, whose place the first output may take
  Ahead ahead;            // to fetch meanwhile
};

class Program {
 public:
  // `graph` and the tensors that it views must outlive the program. `kernels` names a row of the kernel table;
  // null takes the best one that this build and this CPU have. Throws Error(kUnavailable) for any other name.
  static std::unique_ptr<const Program> make(const Graph& graph, const char* kernels = nullptr);

  const Graph& graph() const { return graph_; }
  const KernelSet& kernels() const { return kernels_; }

  // What to run, in order. Some layers do the work of several nodes, whose values in between are then never made;
  // with `keep_values` every value is. The answer is the same to the bit.
  const std::vector<Step>& steps(bool keep_values) const { return keep_values ? all_ : fused_; }

  // Which kernel runs a node, for reports: "avx512vpopcntdq binary_conv2d 4x16", "reference softmax", "fused into
  // conv1".
  const char* node_kernel(size_t node) const { return names_[node].c_str(); }

  // Whether nothing reads the node's weights in the file any more.
  bool owns_weights(size_t node) const { return node_layers_[node]->owns_weights(); }

 private:
  Program(const Graph& graph, const KernelSet& kernels);
  void make_step(size_t node);
  void fuse_stem();
  void fetch_ahead();
  const Layer& keep(std::unique_ptr<const Layer> layer);

  const Graph& graph_;
  const KernelSet& kernels_;
  std::vector<std::unique_ptr<const Layer>> layers_;
  std::vector<const Layer*> node_layers_;  // what holds a node's weights
  std::vector<Step> all_, fused_;
  std::vector<std::string> names_;
};

}  // namespace bitedge
