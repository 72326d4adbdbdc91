// One node of a program. A layer knows its shapes and holds its repacked weights; the values that it reads and writes
// come with each call, so one layer serves many contexts at once.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "graph/graph.h"

namespace bitedge {

class Pool;
struct KernelSet;

// Memory that a later layer reads once, from end to end: worth fetching while another one computes.
struct Ahead {
  const char* data = nullptr;
  size_t bytes = 0;
};

// Where one run of a layer finds its data: `images` images, outermost.
struct Call {
  const void* const* inputs = nullptr;  // in the order of the step
  void* const* outputs = nullptr;       // floats before bits
  void* scratch = nullptr;              // scratch_bytes(images, threads), aligned to 64
  size_t images = 1;
  Ahead ahead;
};

class Layer {
 public:
  virtual ~Layer() = default;
  virtual size_t scratch_bytes(size_t images, int threads) const = 0;
  virtual void run(const Call& call, Pool& pool) const = 0;
  // What one image makes this layer read and no other; and the most that it could fetch for another one meanwhile.
  virtual Ahead streamed() const { return {}; }
  virtual size_t spare_bytes() const { return 0; }
  // Whether the node's weights were copied when the layer was made, so that those of the file are not read any more.
  virtual bool owns_weights() const { return false; }
  const char* kernel() const { return kernel_.c_str(); }

 protected:
  explicit Layer(std::string kernel) : kernel_(std::move(kernel)) {}

 private:
  std::string kernel_;
};

// Chooses and makes the layer of node `node` for a set of kernels.
std::unique_ptr<const Layer> make_layer(const Graph& graph, const Node& node, const KernelSet& kernels);

}  // namespace bitedge
