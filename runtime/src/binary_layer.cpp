#include "binary_layer.h"

#include <algorithm>

#include "../kernels/kernels.h"
#include "aligned.h"
#include "binary_map.h"
#include "ending.h"
#include "geometry.h"
#include "regions.h"
#include "threads.h"

namespace bitedge {
namespace {

size_t in_blocks(size_t channels) { return (channels + kBlock - 1) / kBlock; }

class BinaryLayer final : public Layer {
 public:
  BinaryLayer(const Graph& graph, const Node& node, const KernelSet& kernels, const Geometry& geometry,
              Grouping grouping)
      : Layer(std::string(kernels.name) + " binary_conv2d " +
              (geometry.out.pixels() == 1 ? "1x16" : kernels.binary->tile)),
        kernel_(*kernels.binary),
        geometry_(geometry),
        map_(geometry, grouping, node.pad_value),
        ending_(node, node.inputs.size() > 1 ? &graph.values[size_t(node.inputs[1])] : nullptr, geometry.out),
        groups_(size_t(node.window.groups)),
        blocks_(in_blocks(size_t(geometry.out.channels) / groups_)),
        origins_(geometry.origins(map_.unit())) {
    list_steps(grouping);
    pack(node, grouping);
    fill_base(node);
  }

  size_t scratch_bytes(size_t images, int) const override {
    return map_.is_input() ? 0 : images * map_.image_words() * sizeof(uint64_t);
  }

  void run(const Call& call, Pool& pool) const override {
    ending_.clear_tails(call);
    const uint64_t* map = static_cast<const uint64_t*>(call.input);
    if (!map_.is_input()) {
      map = static_cast<const uint64_t*>(call.scratch);
      prepare(call, pool);
    }
    for (size_t image = 0; image < call.images; image += geometry_.merged()) {
      const size_t images = std::min(geometry_.merged(), call.images - image);
      convolve(map + image * map_.image_words(), images * geometry_.out.pixels(), ending_.bind(call, image), pool);
    }
  }

 private:
  // Words of a block: what a kernel reads for sixteen output channels.
  size_t block_words() const { return (size_t(group_steps_) * size_t(group_size_) + size_t(single_steps_)) * kBlock; }

  // Steps in the order of the weights: groups of words first, then words on their own.
  struct Step {
    int32_t tap, word;
  };
  void list_steps(Grouping grouping) {
    const Window& w = geometry_.window;
    const int32_t words = int32_t((size_t(geometry_.in.channels) / groups_ + 63) / 64);
    group_size_ = grouping == Grouping::kRows ? 3 : grouping == Grouping::kPairs ? 2 : 1;
    std::vector<Step> singles;
    const int32_t whole_rows = w.kernel_h / 3 * 3;
    for (int32_t tap = 0; tap < w.kernel_h * w.kernel_w; tap++) {
      for (int32_t word = 0; word < words; word++) {
        const int32_t row = tap / w.kernel_w;
        const bool in_pair = grouping == Grouping::kPairs && (word | 1) < words;
        const bool in_rows = grouping == Grouping::kRows && row < whole_rows;
        if (in_pair ? word % 2 == 0 : in_rows && row % 3 == 0) order_.push_back({tap, word});
        if (!in_pair && !in_rows) singles.push_back({tap, word});
      }
    }
    group_steps_ = int32_t(order_.size());
    single_steps_ = int32_t(singles.size());
    order_.insert(order_.end(), singles.begin(), singles.end());
    const std::vector<int32_t> taps = geometry_.taps();
    const int32_t pitch = grouping == Grouping::kRows ? 3 : 1;
    for (const Step& s : order_) steps_.push_back(taps[size_t(s.tap)] * int32_t(map_.unit()) + s.word * pitch);
  }

  // [group of channels][block][words of the steps][16 lanes]; channels that a block lacks stay zero.
  void pack(const Node& node, Grouping grouping) {
    const size_t outputs = size_t(geometry_.out.channels) / groups_, taps = steps_of_window();
    const size_t words = (size_t(geometry_.in.channels) / groups_ + 63) / 64;
    weights_ = Aligned<uint64_t>(groups_ * blocks_ * block_words());
    for (size_t channel = 0; channel < size_t(geometry_.out.channels); channel++) {
      const uint64_t* from = node.bits.data + channel * taps * words;
      const size_t within = channel % outputs, block = channel / outputs * blocks_ + within / kBlock;
      uint64_t* to = weights_.data() + block * block_words() + kernel_.lane[within % kBlock];
      const auto put = [&](uint64_t word) {
        *to = word;
        to += kBlock;
      };
      for (size_t i = 0; i < order_.size(); i++) {
        const size_t at = size_t(order_[i].tap) * words + size_t(order_[i].word);
        put(from[at]);
        if (i >= size_t(group_steps_)) continue;
        const size_t next = grouping == Grouping::kRows ? size_t(geometry_.window.kernel_w) * words : 1;
        put(from[at] ^ from[at + next]);
        if (grouping == Grouping::kRows) put(from[at] ^ from[at + next] ^ from[at + 2 * next]);
      }
    }
  }

  // Taps that are padding are counted as if they were +1: popcount(w) each. Under zero padding a pixel's sum is then
  //   Σ real taps (depth - 2·popcount(a xor w)) = depth·real + 2·Σ padded popcount(w) - 2·(all that was counted).
  void fill_base(const Node& node) {
    const bool zero = node.pad_value == 0 && geometry_.padded;
    const size_t depth = size_t(geometry_.in.channels) / groups_, words = (depth + 63) / 64, taps = steps_of_window();
    Geometry::Classes classes;
    if (zero) classes = geometry_.classes();
    if (!zero) classes.real.emplace_back(taps, true);
    const size_t pitch = groups_ * blocks_ * kBlock, outputs = size_t(geometry_.out.channels) / groups_;
    base_ = Aligned<int32_t>(classes.real.size() * pitch);
    for (size_t channel = 0; channel < size_t(geometry_.out.channels); channel++) {
      const size_t lane = channel / outputs * blocks_ * kBlock + channel % outputs;
      for (size_t k = 0; k < classes.real.size(); k++) {
        int32_t sum = 0;
        for (size_t tap = 0; tap < taps; tap++) {
          if (classes.real[k][tap]) {
            sum += int32_t(depth);
          } else {
            const uint64_t* from = node.bits.data + (channel * taps + tap) * words;
            for (size_t i = 0; i < words; i++) sum += 2 * __builtin_popcountll(from[i]);
          }
        }
        base_[k * pitch + lane] = sum;
      }
    }
    for (const int32_t k : classes.of_pixel) rows_.push_back(k * int32_t(pitch));
  }

  size_t steps_of_window() const { return size_t(geometry_.window.kernel_h) * size_t(geometry_.window.kernel_w); }

  void prepare(const Call& call, Pool& pool) const {
    const size_t image_words = geometry_.in.pixels() * geometry_.in.words();
    const size_t parts = pool.size() == 1 ? 1 : std::min(size_t(pool.size()), size_t(geometry_.height));
    pool.each(call.images * parts, [&](size_t i) {
      const size_t image = i / parts, part = i % parts;
      map_.fill(static_cast<const uint64_t*>(call.input) + image * image_words,
                static_cast<uint64_t*>(call.scratch) + image * map_.image_words(),
                int32_t(size_t(geometry_.height) * part / parts),
                int32_t(size_t(geometry_.height) * (part + 1) / parts));
    });
  }

  void convolve(const uint64_t* map, size_t pixels, const Finish& finish, Pool& pool) const {
    BinaryConv conv;
    conv.region.origin = origins_.data();
    conv.region.step = steps_.data();
    conv.map = map;
    conv.groups = group_steps_;
    conv.singles = single_steps_;
    conv.weights = weights_.data();
    conv.base = base_.data();
    conv.row = rows_.empty() ? nullptr : rows_.data();
    conv.finish = finish;
    const Regions regions(pool.size(), pixels, blocks_, blocks_ * block_words() * sizeof(uint64_t));
    pool.each(groups_ * regions.count(), [&](size_t i) {
      BinaryConv part = conv;
      const size_t group = i / regions.count();
      regions.set(i % regions.count(), &part.region);
      part.map += group * map_.group_unit();
      part.region.block_begin += int32_t(group * blocks_);
      part.region.block_end += int32_t(group * blocks_);
      if (part.region.pixel_begin >= part.region.pixel_end) return;
      pixels == 1 ? kernel_.stream(part) : kernel_.run(part);
    });
  }

  const BinaryKernel& kernel_;
  Geometry geometry_;
  BinaryMap map_;
  EndingPlan ending_;
  size_t groups_, blocks_;  // of channels; blocks of output channels in each
  std::vector<int32_t> origins_, steps_, rows_;
  std::vector<Step> order_;
  int32_t group_steps_ = 0, single_steps_ = 0, group_size_ = 1;
  Aligned<uint64_t> weights_;
  Aligned<int32_t> base_;
};

}  // namespace

std::unique_ptr<const Layer> make_binary_layer(const Graph& graph, const Node& node, const KernelSet& kernels) {
  if (!kernels.binary) return nullptr;
  const Shape& in = graph.values[size_t(node.inputs[0])].shape;
  const Geometry geometry(node.window, in, graph.values[size_t(node.outputs[0])].shape);
  const size_t groups = size_t(node.window.groups), words = (size_t(in.channels) / groups + 63) / 64;
  // Blocks of a group must not share a word's 16 bits with the next group.
  if (groups > 1 && size_t(geometry.out.channels) / groups % kBlock) return nullptr;
  Grouping grouping = kernels.binary->grouping;
  const bool few = geometry.out.pixels() == 1;  // memory is the limit, and the map is mostly the input itself
  if (few || (grouping == Grouping::kPairs && words < 2) || (grouping == Grouping::kRows && node.window.kernel_h < 3)) {
    grouping = Grouping::kNone;
  }
  if (!geometry.fits(3 * groups * words)) return nullptr;
  return std::make_unique<BinaryLayer>(graph, node, kernels, geometry, grouping);
}

}  // namespace bitedge
