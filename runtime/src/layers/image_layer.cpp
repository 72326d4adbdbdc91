#include "layers/image_layer.h"

#include <algorithm>
#include <cstring>

#include "base/aligned.h"
#include "base/threads.h"
#include "kernels/kernels.h"
#include "layers/epilogue.h"
#include "layers/geometry.h"
#include "layers/padded_map.h"
#include "layers/regions.h"

namespace bitedge {
namespace {

constexpr size_t kOverread = 4;  // a step reads four bytes, of which the last ones may lie behind the map

class ImageLayer final : public Layer {
 public:
  ImageLayer(const Graph& graph, const Node& node, const KernelSet& kernels, const Geometry& geometry)
      : Layer(std::string(kernels.name) + " image_conv2d " + kernels.image->tile),
        kernel_(*kernels.image),
        geometry_(geometry),
        epilogue_(graph, node),
        blocks_((size_t(geometry.out.channels) + kBlock - 1) / kBlock),
        origins_(geometry.origins(size_t(geometry.in.channels))) {
    pack(node);
    fill_base(node);
  }

  size_t scratch_bytes(size_t images, int) const override { return images * map_bytes() + kOverread; }

  bool owns_weights() const override { return true; }

  void run(const Call& call, Pool& pool) const override {
    epilogue_.clear_tails(call);
    prepare(call, pool);
    for (size_t image = 0; image < call.images; image += geometry_.merged()) {
      const size_t images = std::min(geometry_.merged(), call.images - image);
      convolve(static_cast<const uint8_t*>(call.scratch) + image * map_bytes(), images * geometry_.out.pixels(),
               epilogue_.bind(call, image), pool);
    }
  }

 private:
  size_t map_bytes() const { return geometry_.map_pixels() * size_t(geometry_.in.channels); }

  // +1 or -1 of output channel o, tap t, input channel i.
  int8_t weight(const Node& node, size_t o, size_t t, size_t i) const {
    const size_t words = geometry_.in.words(),
                 taps = size_t(geometry_.window.kernel_h) * size_t(geometry_.window.kernel_w);
    return (node.bits[(o * taps + t) * words + i / 64] >> (i % 64)) & 1 ? -1 : 1;
  }

  // Bytes that lie side by side are taken four at a time, those past the end with weight 0: [block][step][16][4].
  void pack(const Node& node) {
    const Window& w = geometry_.window;
    const bool rows = w.dilation_w == 1;
    const size_t depth = size_t(geometry_.in.channels), together = rows ? size_t(w.kernel_w) : 1;
    const std::vector<int32_t> taps = geometry_.taps();
    const size_t per_run = (together * depth + 3) / 4, runs = taps.size() / together;
    for (size_t run = 0; run < runs; run++) {
      for (size_t i = 0; i < per_run; i++) steps_.push_back(taps[run * together] * int32_t(depth) + int32_t(4 * i));
    }
    weights_ = Aligned<int8_t>(blocks_ * steps_.size() * kBlock * 4);
    for (size_t o = 0; o < size_t(geometry_.out.channels); o++) {
      for (size_t run = 0; run < runs; run++) {
        for (size_t j = 0; j < together * depth; j++) {
          const size_t step = run * per_run + j / 4;
          weights_[((o / kBlock * steps_.size() + step) * kBlock + o % kBlock) * 4 + j % 4] =
              weight(node, o, run * together + j / depth, j % depth);
        }
      }
    }
  }

  // Σ w·(2u - 255) over the real taps = 2·Σ w·(u - bias) + (2·bias - 255)·Σ w, where padding holds u - bias = 0.
  void fill_base(const Node& node) {
    Geometry::Classes classes;
    const size_t taps = geometry_.taps().size(), pitch = blocks_ * kBlock;
    if (geometry_.padded) classes = geometry_.classes();
    if (!geometry_.padded) classes.real.emplace_back(taps, true);
    base_ = Aligned<int32_t>(classes.real.size() * pitch);
    for (size_t o = 0; o < size_t(geometry_.out.channels); o++) {
      for (size_t k = 0; k < classes.real.size(); k++) {
        int32_t sum = 0;
        for (size_t t = 0; t < taps; t++) {
          for (size_t i = 0; classes.real[k][t] && i < size_t(geometry_.in.channels); i++) sum += weight(node, o, t, i);
        }
        base_[k * pitch + o] = (2 * kernel_.bias - 255) * sum;
      }
    }
    for (const int32_t k : classes.of_pixel) rows_.push_back(k * int32_t(pitch));
  }

  void prepare(const Call& call, Pool& pool) const {
    const size_t parts = std::min(size_t(pool.size()), size_t(geometry_.height)), rows = size_t(geometry_.height);
    const uint8_t flip = uint8_t(kernel_.bias);  // u - 128 as a signed byte is u with its highest bit flipped
    pool.each(call.images * parts, [&](size_t i) {
      const size_t image = i / parts, part = i % parts;
      fill_padded(geometry_, static_cast<const uint8_t*>(call.inputs[0]) + image * geometry_.in.elements(),
                  static_cast<uint8_t*>(call.scratch) + image * map_bytes(), int32_t(rows * part / parts),
                  int32_t(rows * (part + 1) / parts), [&](const uint8_t* from, uint8_t* to, size_t n) {
                    for (size_t j = 0; j < n; j++) to[j] = uint8_t(from[j] ^ flip);
                  });
    });
    std::memset(static_cast<uint8_t*>(call.scratch) + call.images * map_bytes(), 0, kOverread);
  }

  void convolve(const uint8_t* map, size_t pixels, const BoundEpilogue& epilogue, Pool& pool) const {
    ImageConv conv;
    conv.region.origin = origins_.data();
    conv.region.step = steps_.data();
    conv.map = map;
    conv.steps = int32_t(steps_.size());
    conv.weights = weights_.data();
    conv.base = base_.data();
    conv.row = rows_.empty() ? nullptr : rows_.data();
    conv.epilogue = epilogue;
    const Regions regions(pool.size(), {pixels, blocks_, weights_.size()});
    pool.each(regions.count(), [&](size_t i) {
      ImageConv part = conv;
      regions.set(i, &part.region);
      if (part.region.pixel_begin < part.region.pixel_end) kernel_.run(part);
    });
  }

  const ImageKernel& kernel_;
  Geometry geometry_;
  EpilogueBinder epilogue_;
  size_t blocks_;
  std::vector<int32_t> origins_, steps_, rows_;
  Aligned<int8_t> weights_;
  Aligned<int32_t> base_;
};

}  // namespace

std::unique_ptr<const Layer> make_image_layer(const Graph& graph, const Node& node, const KernelSet& kernels) {
  if (!kernels.image || node.window.groups != 1) return nullptr;
  const Shape& in = graph.values[size_t(node.inputs[0])].shape;
  const Geometry geometry(node.window, in, graph.values[size_t(node.outputs[0])].shape);
  if (!geometry.fits(size_t(in.channels))) return nullptr;
  return std::make_unique<ImageLayer>(graph, node, kernels, geometry);
}

}  // namespace bitedge
