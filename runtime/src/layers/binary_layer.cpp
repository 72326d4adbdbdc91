#include "layers/binary_layer.h"

#include <algorithm>

#include "base/aligned.h"
#include "base/threads.h"
#include "kernels/kernels.h"
#include "layers/binary_map.h"
#include "layers/epilogue.h"
#include "layers/geometry.h"
#include "layers/half_word_map.h"
#include "layers/padded_groups.h"
#include "layers/regions.h"

namespace bitedge {
namespace {

size_t in_blocks(size_t channels) { return (channels + kBlock - 1) / kBlock; }

// On words of 64 bits, or on half words: `Map` has the type, Map::Word.
template <typename Map>
class BinaryLayer final : public Layer {
 public:
  using Word = typename Map::Word;

  BinaryLayer(const Graph& graph, const Node& node, const char* set, const BinaryKernel& kernel,
              const Geometry& geometry, Grouping grouping)
      : Layer(std::string(set) + " binary_conv2d " + (geometry.out.pixels() == 1 ? "1x16" : kernel.tile)),
        kernel_(kernel),
        geometry_(geometry),
        map_(geometry, grouping, node.pad_value),
        epilogue_(graph, node),
        groups_(size_t(node.window.groups)),
        blocks_(in_blocks(size_t(geometry.out.channels) / groups_)),
        origins_(geometry.origins(map_.unit())) {
    list_steps(grouping);
    pack(node, grouping);
    fill_base(node);
  }

  size_t scratch_bytes(size_t images, int) const override {
    return map_.is_input() ? 0 : images * map_.image_words() * sizeof(Word);
  }

  Ahead streamed() const override {
    if (geometry_.out.pixels() > 1) return {};
    return {reinterpret_cast<const char*>(weights_.data()), weights_.size() * sizeof(Word)};
  }

  size_t spare_bytes() const override {
    if (geometry_.out.pixels() == 1) return 0;
    const size_t depth = taps_of_window() * size_t(geometry_.in.channels) / groups_;
    return geometry_.out.elements() * depth / tuning::kProductsPerByte;
  }

  bool owns_weights() const override { return true; }

  void run(const Call& call, Pool& pool) const override {
    epilogue_.clear_tails(call);
    const Word* map = static_cast<const Word*>(call.inputs[0]);
    if (!map_.is_input()) {
      map = static_cast<const Word*>(call.scratch);
      prepare(call, pool);
    }
    for (size_t image = 0; image < call.images; image += geometry_.merged()) {
      const size_t images = std::min(geometry_.merged(), call.images - image);
      convolve(map + image * map_.image_words(), images * geometry_.out.pixels(), epilogue_.bind(call, image),
               image ? Ahead() : call.ahead, pool);
    }
  }

 private:
  // Words of a block: what a kernel reads for sixteen output channels.
  size_t block_words() const { return (size_t(group_steps_) * size_t(group_size_) + size_t(single_steps_)) * kBlock; }

  static constexpr bool kHalf = sizeof(Word) < sizeof(uint64_t);
  static constexpr size_t kBits = 8 * sizeof(Word);
  // Of one tap: words that count, and words of the node's weights.
  size_t words() const { return (size_t(geometry_.in.channels) / groups_ + kBits - 1) / kBits; }
  size_t stored_words() const { return (size_t(geometry_.in.channels) / groups_ + 63) / 64 * (64 / kBits); }

  // Steps in the order of the weights: groups of words first, then words on their own. The words of a group are `next`
  // apart in the node's weights.
  struct Step {
    size_t tap, word, next;
  };
  void list_steps(Grouping grouping) {
    const Window& w = geometry_.window;
    const size_t width = size_t(w.kernel_w), last = words() - 1, whole_rows = size_t(w.kernel_h / 3 * 3);
    group_size_ = grouping == Grouping::kRows ? 3 : grouping == Grouping::kPairs ? 2 : 1;
    std::vector<Step> singles;
    for (size_t tap = 0; tap < taps_of_window(); tap++) {
      for (size_t word = 0; word <= last; word++) {
        const size_t row = tap / width, column = tap % width;
        if (grouping == Grouping::kPairs && (word | 1) <= last) {
          if (word % 2 == 0) order_.push_back({tap, word, 1});
        } else if (grouping == Grouping::kRows && row < whole_rows) {
          if (row % 3 == 0) order_.push_back({tap, word, width * stored_words()});
        } else if (kHalf && (column | 1) < width) {
          if (column % 2 == 0) order_.push_back({tap, word, stored_words()});
        } else {
          singles.push_back({tap, word, 0});
        }
      }
    }
    group_steps_ = int32_t(order_.size());
    single_steps_ = int32_t(singles.size());
    order_.insert(order_.end(), singles.begin(), singles.end());
    const std::vector<int32_t> taps = geometry_.taps();
    const size_t pitch = grouping == Grouping::kRows ? 3 : 1;
    for (const Step& s : order_) steps_.push_back(taps[s.tap] * int32_t(map_.unit()) + int32_t(s.word * pitch));
  }

  // [group of channels][block][words of the steps][16 lanes]; channels that a block lacks stay zero.
  void pack(const Node& node, Grouping grouping) {
    const size_t outputs = size_t(geometry_.out.channels) / groups_, stored = stored_words();
    weights_ = Aligned<Word>(groups_ * blocks_ * block_words());
    for (size_t channel = 0; channel < size_t(geometry_.out.channels); channel++) {
      const Word* from = reinterpret_cast<const Word*>(node.bits.data) + channel * taps_of_window() * stored;
      const size_t within = channel % outputs, block = channel / outputs * blocks_ + within / kBlock;
      Word* to = weights_.data() + block * block_words() + kernel_.lane[within % kBlock];
      const auto put = [&](Word word) {
        *to = word;
        to += kBlock;
      };
      for (const Step& s : order_) {
        const Word* word = from + s.tap * stored + s.word;
        put(word[0]);
        if (!s.next) continue;
        put(word[0] ^ word[s.next]);
        if (grouping == Grouping::kRows) put(word[0] ^ word[s.next] ^ word[2 * s.next]);
      }
    }
  }

  // Taps that are padding are counted as if they were +1: popcount(w) each. Under zero padding a pixel's sum is then
  //   Σ real taps (depth - 2·popcount(a xor w)) = depth·real + 2·Σ padded popcount(w) - 2·(all that was counted).
  void fill_base(const Node& node) {
    const bool zero = node.pad_value == 0 && geometry_.padded;
    const size_t depth = size_t(geometry_.in.channels) / groups_, words = (depth + 63) / 64, taps = taps_of_window();
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

  size_t taps_of_window() const { return size_t(geometry_.window.kernel_h) * size_t(geometry_.window.kernel_w); }

  void prepare(const Call& call, Pool& pool) const {
    const size_t image_words = geometry_.in.pixels() * geometry_.in.words() * (64 / kBits);
    const size_t parts = pool.size() == 1 ? 1 : std::min(size_t(pool.size()), size_t(geometry_.height));
    pool.each(call.images * parts, [&](size_t i) {
      const size_t image = i / parts, part = i % parts;
      map_.fill(static_cast<const Word*>(call.inputs[0]) + image * image_words,
                static_cast<Word*>(call.scratch) + image * map_.image_words(),
                int32_t(size_t(geometry_.height) * part / parts),
                int32_t(size_t(geometry_.height) * (part + 1) / parts));
    });
  }

  void convolve(const Word* map, size_t pixels, const BoundEpilogue& epilogue, const Ahead& ahead, Pool& pool) const {
    BinaryConv conv;
    conv.region.origin = origins_.data();
    conv.region.step = steps_.data();
    conv.map = reinterpret_cast<const uint64_t*>(map);
    conv.groups = group_steps_;
    conv.singles = single_steps_;
    conv.weights = reinterpret_cast<const uint64_t*>(weights_.data());
    conv.base = base_.data();
    conv.row = rows_.empty() ? nullptr : rows_.data();
    conv.epilogue = epilogue;
    const Regions regions(pool.size(), {pixels, blocks_, blocks_ * block_words() * sizeof(Word)});
    pool.each(groups_ * regions.count(), [&](size_t i) {
      BinaryConv part = conv;
      const size_t group = i / regions.count();
      regions.set(i % regions.count(), &part.region);
      const size_t parts = groups_ * regions.count(), begin = ahead.bytes * i / parts;
      part.ahead = ahead.data + begin;
      part.ahead_bytes = ahead.bytes * (i + 1) / parts - begin;
      part.map += group * map_.group_unit();
      part.region.block_begin += int32_t(group * blocks_);
      part.region.block_end += int32_t(group * blocks_);
      if (part.region.pixel_begin >= part.region.pixel_end) return;
      pixels == 1 ? kernel_.stream(part) : kernel_.run(part);
    });
  }

  const BinaryKernel& kernel_;
  Geometry geometry_;
  Map map_;
  EpilogueBinder epilogue_;
  size_t groups_, blocks_;  // of channels; blocks of output channels in each
  std::vector<int32_t> origins_, steps_, rows_;
  std::vector<Step> order_;
  int32_t group_steps_ = 0, single_steps_ = 0, group_size_ = 1;
  Aligned<Word> weights_;
  Aligned<int32_t> base_;
};

}  // namespace

std::unique_ptr<const Layer> make_binary_layer(const Graph& graph, const Node& node, const KernelSet& kernels) {
  if (!kernels.binary) return nullptr;
  const Shape& in = graph.values[size_t(node.inputs[0])].shape;
  const Geometry geometry(node.window, in, graph.values[size_t(node.outputs[0])].shape);
  const size_t groups = size_t(node.window.groups), words = (size_t(in.channels) / groups + 63) / 64;
  // Blocks of a group must not share a word's 16 bits with the next group.
  if (groups > 1 && size_t(geometry.out.channels) / groups % kBlock) {
    return make_padded_groups(graph, node, kernels, make_binary_layer);
  }
  Grouping grouping = kernels.binary->grouping;
  const bool few = geometry.out.pixels() == 1;  // memory is the limit, and the map is mostly the input itself
  if (few || (grouping == Grouping::kPairs && words < 2) || (grouping == Grouping::kRows && node.window.kernel_h < 3)) {
    grouping = Grouping::kNone;
  }
  if (!geometry.fits(3 * groups * words)) return nullptr;
  if (kernels.half && groups == 1 && !few) {
    return std::make_unique<BinaryLayer<HalfWordMap>>(graph, node, kernels.name, *kernels.half, geometry,
                                                      kernels.half->grouping);
  }
  return std::make_unique<BinaryLayer<BinaryMap>>(graph, node, kernels.name, *kernels.binary, geometry, grouping);
}

}  // namespace bitedge
