// The networks of the paper with random weights, built in memory: to be measured without a file, and to be run by
// several sets of kernels and compared. Scales are those of a trained network: sums have a spread of about one, so
// signs are even.
#pragma once

#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace bitedge {

struct NetworkSize {
  int32_t image = 0;  // pixels along each side; 0: what the paper has
  int32_t width = 0;  // channels of the first layer; 0: what the paper has
  int32_t classes = 0;
  uint32_t seed = 1;
  double disturbance = 0;  // of the float convolutions' weights, by this part of themselves, either way in turn
};

// Owns a graph and the tensors that it views.
class RandomNetwork {
 public:
  // "binarynet", "xnornet" or "birealnet18"; throws Error(kArgument) for any other name.
  static std::unique_ptr<RandomNetwork> make(const std::string& name, const NetworkSize& size = {});
  static const std::vector<std::string>& names();

  const Graph& graph() const { return graph_; }
  std::vector<unsigned char> random_input(size_t images);

 private:
  explicit RandomNetwork(const NetworkSize& size) : disturbance_(size.disturbance), random_(size.seed) {}
  void binarynet(const NetworkSize& size);
  void xnornet(const NetworkSize& size);
  void birealnet18(const NetworkSize& size);

  // Each adds a node and returns the index of its (first) output.
  struct Conv {
    int32_t kernel = 3, stride = 1, pad = 1, outputs = 64;
  };
  int32_t input(int32_t side);
  int32_t normalize(int32_t from);
  int32_t conv(int32_t from, const Conv& c, bool relu = false, int32_t residual = -1, bool bits = false);
  int32_t dense(int32_t from, int32_t outputs);
  int32_t image(int32_t from, const Conv& c);
  int32_t binary(int32_t from, const Conv& c);  // a threshold: bits out
  int32_t binary_float(int32_t from, const Conv& c, int32_t residual = -1, bool bits = false, bool relu = false);
  int32_t max_pool(int32_t from, int32_t kernel, int32_t stride, int32_t pad);
  int32_t avg_pool(int32_t from, int32_t kernel, int32_t stride);
  int32_t sign(int32_t from, bool scale);

  Node& add(Op op, int32_t from);
  int32_t emit(Node* node, Kind kind, const Shape& shape);
  void window(Node* node, const Conv& c);
  Shape after(int32_t from, const Conv& c) const;
  EpilogueStep& add_step(Node* node, StepKind kind);
  void add_residual(Node* node, int32_t residual);  // -1: none
  void set_scale(Node* node, int32_t outputs, double spread);
  View<float> floats(size_t n, double spread, double middle = 0, double disturbance = 0);
  View<uint64_t> bits(size_t rows, size_t channels);
  double normal();

  const double disturbance_;
  std::mt19937 random_;
  Graph graph_;
  std::deque<std::vector<float>> floats_;
  std::deque<std::vector<uint64_t>> bits_;
  std::deque<std::vector<int32_t>> thresholds_;
};

}  // namespace bitedge
