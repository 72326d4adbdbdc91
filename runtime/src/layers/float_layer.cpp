#include "layers/float_layer.h"

#include <algorithm>
#include <cstring>

#include "base/aligned.h"
#include "base/threads.h"
#include "kernels/kernels.h"
#include "kernels/scalar.h"
#include "layers/epilogue.h"
#include "layers/geometry.h"
#include "layers/lane_layer.h"
#include "layers/padded_groups.h"
#include "layers/padded_map.h"
#include "layers/regions.h"

namespace bitedge {
namespace {

// What the widest kernel takes at a time, so that parts are whole tiles for all of them.
constexpr size_t kTilePixels = 6, kTileBlocks = 4;

class FloatLayer final : public Layer {
 public:
  FloatLayer(const Graph& graph, const Node& node, const KernelSet& kernels, const Geometry& geometry)
      : Layer(std::string(kernels.name) + " conv2d " + kernels.conv->tile),
        kernel_(*kernels.conv),
        geometry_(geometry),
        epilogue_(graph, node),
        groups_(size_t(node.window.groups)),
        blocks_((size_t(geometry.out.channels) / groups_ + kBlock - 1) / kBlock),
        dense_(geometry.out.pixels() == 1 && groups_ == 1),
        side_(dense_ ? (blocks_ + kTileBlocks - 1) / kTileBlocks * kTileBlocks : 1),
        origins_(geometry.origins(size_t(geometry.in.channels))) {
    const size_t depth = size_t(geometry.in.channels) / groups_, taps = geometry.taps().size();
    list_steps(depth);
    pack(node, taps * depth);
  }

  // The padded map; and for a stream its list and its sums.
  size_t scratch_bytes(size_t images, int) const override {
    return map_bytes(images) + (dense_ ? (2 * depth_ + FloatStream::kRows + side_ * kBlock) * sizeof(float) : 0);
  }

  bool owns_weights() const override { return true; }

  void run(const Call& call, Pool& pool) const override {
    epilogue_.clear_tails(call);
    const float* map = static_cast<const float*>(call.inputs[0]);
    if (geometry_.padded) {
      map = static_cast<const float*>(call.scratch);
      prepare(call, pool);
    }
    for (size_t image = 0; image < call.images; image += geometry_.merged()) {
      const size_t images = std::min(geometry_.merged(), call.images - image);
      const BoundEpilogue epilogue = epilogue_.bind(call, image);
      if (dense_ && images == 1) {
        void* scratch = static_cast<unsigned char*>(call.scratch) + map_bytes(call.images);
        stream(map + image * map_floats(), epilogue, static_cast<float*>(scratch), pool);
      } else {
        convolve(map + image * map_floats(), images * geometry_.out.pixels(), epilogue, pool);
      }
    }
  }

 private:
  size_t map_floats() const { return geometry_.map_pixels() * size_t(geometry_.in.channels); }
  size_t map_bytes(size_t images) const { return geometry_.padded ? images * map_floats() * sizeof(float) : 0; }

  // A row of the kernel is one step when its pixels lie side by side.
  void list_steps(size_t depth) {
    const Window& w = geometry_.window;
    const bool rows = w.dilation_w == 1 && groups_ == 1;
    const std::vector<int32_t> taps = geometry_.taps();
    run_ = int32_t(rows ? depth * size_t(w.kernel_w) : depth);
    for (size_t tap = 0; tap < taps.size(); tap += rows ? size_t(w.kernel_w) : 1) {
      steps_.push_back(taps[tap] * geometry_.in.channels);
    }
  }

  // [group of channels][block / side][taps · channels][side][16 lanes], a few rows at a time so that they stay in the
  // cache.
  void pack(const Node& node, size_t depth) {
    constexpr size_t kRows = 64;
    const size_t outputs = size_t(geometry_.out.channels) / groups_;
    depth_ = depth;
    weights_ = Aligned<float>((dense_ ? side_ : groups_ * blocks_) * depth * kBlock);
    for (size_t row = 0; row < depth; row += kRows) {
      for (size_t channel = 0; channel < size_t(geometry_.out.channels); channel++) {
        const size_t within = channel % outputs, block = channel / outputs * blocks_ + within / kBlock;
        float* to =
            weights_.data() + (block - block % side_) * depth * kBlock + block % side_ * kBlock + within % kBlock;
        for (size_t i = row; i < std::min(row + kRows, depth); i++) {
          const size_t at = channel * depth + i;
          to[i * side_ * kBlock] = node.weight_f32 ? node.weight_f32[at] : scalar::half_to_float(node.weight_f16[at]);
        }
      }
    }
  }

  void prepare(const Call& call, Pool& pool) const {
    const size_t parts = std::min(size_t(pool.size()), size_t(geometry_.height));
    pool.each(call.images * parts, [&](size_t i) {
      const size_t image = i / parts, part = i % parts, rows = size_t(geometry_.height);
      fill_padded(geometry_, static_cast<const float*>(call.inputs[0]) + image * geometry_.in.elements(),
                  static_cast<float*>(call.scratch) + image * map_floats(), int32_t(rows * part / parts),
                  int32_t(rows * (part + 1) / parts),
                  [](const float* from, float* to, size_t n) { std::memcpy(to, from, n * sizeof(float)); });
    });
  }

  // One image through a dense layer.
  void stream(const float* map, const BoundEpilogue& epilogue, float* scratch, Pool& pool) const {
    float* values = scratch + side_ * kBlock;
    int32_t* rows = reinterpret_cast<int32_t*>(values + depth_);
    FloatStream whole;
    for (size_t s = 0; s < steps_.size(); s++) {
      const float* from = map + origins_[0] + steps_[s];
      for (int32_t k = 0; k < run_; k++) {
        rows[whole.count] = int32_t(s) * run_ + k;
        values[whole.count] = from[k];
        whole.count += from[k] != 0;
      }
    }
    std::fill_n(rows + whole.count, FloatStream::kRows, 0);
    whole.row = rows;
    whole.value = values;
    whole.blocks = int32_t(side_);
    whole.weights = weights_.data();
    whole.sums = scratch;
    whole.epilogue = epilogue;
    const size_t tiles = side_ / kTileBlocks, parts = std::min(tiles, size_t(pool.size()));
    pool.each(parts, [&](size_t i) {
      FloatStream part = whole;
      part.block_begin = int32_t(tiles * i / parts * kTileBlocks);
      part.block_end = int32_t(tiles * (i + 1) / parts * kTileBlocks);
      kernel_.stream(part);
    });
  }

  void convolve(const float* map, size_t pixels, const BoundEpilogue& epilogue, Pool& pool) const {
    FloatConv conv;
    conv.region.origin = origins_.data();
    conv.region.step = steps_.data();
    conv.map = map;
    conv.steps = int32_t(steps_.size());
    conv.run = run_;
    conv.side = int32_t(side_);
    conv.weights = weights_.data();
    conv.epilogue = epilogue;
    const size_t bytes = blocks_ * depth_ * kBlock * sizeof(float);
    const Regions regions(pool.size(), {pixels, blocks_, bytes, kTilePixels, kTileBlocks});
    pool.each(groups_ * regions.count(), [&](size_t i) {
      FloatConv part = conv;
      const size_t group = i / regions.count();
      regions.set(i % regions.count(), &part.region);
      part.map += group * depth_ / steps_.size();
      part.region.block_begin += int32_t(group * blocks_);
      part.region.block_end += int32_t(group * blocks_);
      if (part.region.pixel_begin < part.region.pixel_end) kernel_.run(part);
    });
  }

  const FloatKernel& kernel_;
  Geometry geometry_;
  EpilogueBinder epilogue_;
  size_t groups_, blocks_;  // of channels; blocks of output channels in each
  bool dense_;              // one output pixel
  size_t side_;             // blocks whose weights lie side by side: all, in whole tiles, or 1
  size_t depth_ = 0;        // weights of one output channel
  int32_t run_ = 0;
  std::vector<int32_t> origins_, steps_;
  Aligned<float> weights_;
};

}  // namespace

std::unique_ptr<const Layer> make_float_layer(const Graph& graph, const Node& node, const KernelSet& kernels) {
  if (!kernels.conv) return nullptr;
  const Shape& in = graph.values[size_t(node.inputs[0])].shape;
  const Geometry geometry(node.window, in, graph.values[size_t(node.outputs[0])].shape);
  const size_t groups = size_t(node.window.groups);
  if (groups > 1 && size_t(geometry.out.channels) / groups % kBlock) {
    std::unique_ptr<const Layer> lanes = make_lane_layer(graph, node, kernels);
    return lanes ? std::move(lanes) : make_padded_groups(graph, node, kernels, make_float_layer);
  }
  if (!geometry.fits(size_t(in.channels))) return nullptr;
  return std::make_unique<FloatLayer>(graph, node, kernels, geometry);
}

}  // namespace bitedge
