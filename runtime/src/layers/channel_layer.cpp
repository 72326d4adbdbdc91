#include "layers/channel_layer.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/threads.h"
#include "kernels/kernels.h"

namespace bitedge {
namespace {

// Threads share pixels; a few parts each, so that they end together.
template <typename Each>
void each_pixel(Pool& pool, size_t pixels, const Each& each) {
  const size_t parts = pool.size() == 1 ? 1 : std::min(pixels, size_t(pool.size()) * 4);
  pool.each(parts, [&](size_t part) {
    for (size_t pixel = pixels * part / parts; pixel < pixels * (part + 1) / parts; pixel++) each(pixel);
  });
}

size_t words_of(size_t channels) { return (channels + 63) / 64; }

class ConcatLayer final : public Layer {
 public:
  ConcatLayer(const Graph& graph, const Node& node, const KernelSet& kernels)
      : Layer(std::string(kernels.name) + " concat"),
        bits_(graph.values[size_t(node.inputs[0])].kind == Kind::kBits),
        out_(graph.values[size_t(node.outputs[0])].shape) {
    for (const int32_t i : node.inputs) channels_.push_back(size_t(graph.values[size_t(i)].shape.channels));
  }

  size_t scratch_bytes(size_t, int) const override { return 0; }

  void run(const Call& call, Pool& pool) const override {
    each_pixel(pool, call.images * out_.pixels(),
               [&](size_t pixel) { bits_ ? bits(call, pixel) : floats(call, pixel); });
  }

 private:
  void floats(const Call& call, size_t pixel) const {
    float* to = static_cast<float*>(call.outputs[0]) + pixel * size_t(out_.channels);
    for (size_t i = 0; i < channels_.size(); i++) {
      const float* from = static_cast<const float*>(call.inputs[i]) + pixel * channels_[i];
      std::memcpy(to, from, channels_[i] * sizeof(float));
      to += channels_[i];
    }
  }

  // Tail bits are 0, so that words can be shifted into place and joined.
  void bits(const Call& call, size_t pixel) const {
    uint64_t* to = static_cast<uint64_t*>(call.outputs[0]) + pixel * out_.words();
    std::fill_n(to, out_.words(), uint64_t(0));
    size_t first = 0;
    for (size_t i = 0; i < channels_.size(); i++) {
      const size_t words = words_of(channels_[i]);
      const uint64_t* from = static_cast<const uint64_t*>(call.inputs[i]) + pixel * words;
      const size_t shift = first % 64;
      for (size_t w = 0; w < words; w++) {
        const size_t at = first / 64 + w;
        to[at] |= from[w] << shift;
        if (shift && at + 1 < out_.words()) to[at + 1] |= from[w] >> (64 - shift);
      }
      first += channels_[i];
    }
  }

  bool bits_;
  Shape out_;
  std::vector<size_t> channels_;
};

class GatherLayer final : public Layer {
 public:
  GatherLayer(const Graph& graph, const Node& node, const KernelSet& kernels)
      : Layer(std::string(kernels.name) + " gather_channels"),
        bits_(graph.values[size_t(node.inputs[0])].kind == Kind::kBits),
        in_(graph.values[size_t(node.inputs[0])].shape),
        index_(node.index.data, node.index.data + node.index.size) {}

  size_t scratch_bytes(size_t, int) const override { return 0; }

  void run(const Call& call, Pool& pool) const override {
    each_pixel(pool, call.images * in_.pixels(),
               [&](size_t pixel) { bits_ ? bits(call, pixel) : floats(call, pixel); });
  }

 private:
  void floats(const Call& call, size_t pixel) const {
    const float* from = static_cast<const float*>(call.inputs[0]) + pixel * size_t(in_.channels);
    float* to = static_cast<float*>(call.outputs[0]) + pixel * index_.size();
    for (size_t c = 0; c < index_.size(); c++) to[c] = index_[c] < 0 ? 0.0f : from[index_[c]];
  }

  void bits(const Call& call, size_t pixel) const {
    const uint64_t* from = static_cast<const uint64_t*>(call.inputs[0]) + pixel * in_.words();
    uint64_t* to = static_cast<uint64_t*>(call.outputs[0]) + pixel * words_of(index_.size());
    for (size_t first = 0; first < index_.size(); first += 64) {
      uint64_t word = 0;
      for (size_t c = first; c < std::min(first + 64, index_.size()); c++) {
        word |= (from[index_[c] / 64] >> (index_[c] % 64) & 1) << (c % 64);
      }
      to[first / 64] = word;
    }
  }

  bool bits_;
  Shape in_;
  std::vector<int32_t> index_;
};

}  // namespace

std::unique_ptr<const Layer> make_concat_layer(const Graph& graph, const Node& node, const KernelSet& kernels) {
  if (!kernels.rows) return nullptr;
  return std::make_unique<ConcatLayer>(graph, node, kernels);
}

std::unique_ptr<const Layer> make_gather_layer(const Graph& graph, const Node& node, const KernelSet& kernels) {
  if (!kernels.rows) return nullptr;
  return std::make_unique<GatherLayer>(graph, node, kernels);
}

}  // namespace bitedge
