#include "layers/lane_layer.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "base/aligned.h"
#include "base/threads.h"
#include "kernels/kernels.h"
#include "kernels/scalar.h"
#include "layers/epilogue.h"
#include "layers/pool_window.h"

namespace bitedge {
namespace {

// Of a group: a map that is spread over the lanes grows as often.
constexpr size_t kMostOutputs = 8;

size_t in_blocks(size_t channels) { return (channels + kBlock - 1) / kBlock; }

class LaneLayer final : public Layer {
 public:
  LaneLayer(const Graph& graph, const Node& node, const KernelSet& kernels)
      : Layer(std::string(kernels.name) + " conv2d by lanes " + kernels.lanes->tile),
        kernel_(*kernels.lanes),
        in_(graph.values[size_t(node.inputs[0])].shape),
        out_(graph.values[size_t(node.outputs[0])].shape),
        depth_(size_t(in_.channels / node.window.groups)),
        outputs_(size_t(out_.channels / node.window.groups)),
        blocks_(in_blocks(size_t(out_.channels))),
        epilogue_(graph, node) {
    static_cast<Windows&>(conv_) = windows_of(graph, node);
    conv_.depth = int32_t(depth_);
    conv_.lanes = int32_t(blocks_ * kBlock);
    is_input_ = depth_ == 1 && outputs_ == 1 && out_.channels % kBlock == 0;
    if (!is_input_) list_channels();
    list_steps();
    pack(node);
    conv_.step = steps_.data();
    conv_.weights = weights_.data();
  }

  size_t scratch_bytes(size_t, int) const override {
    return is_input_ ? 0 : in_.pixels() * depth_ * blocks_ * kBlock * sizeof(float);
  }

  bool owns_weights() const override { return true; }

  void run(const Call& call, Pool& pool) const override {
    epilogue_.clear_tails(call);
    const size_t rows = size_t(out_.height), parts = pool.size() == 1 ? 1 : std::min(rows, size_t(pool.size()) * 4);
    for (size_t image = 0; image < call.images; image++) {
      const float* map = static_cast<const float*>(call.inputs[0]) + image * in_.elements();
      if (!is_input_) map = spread(map, static_cast<float*>(call.scratch), pool);
      const BoundEpilogue epilogue = epilogue_.bind(call, image);
      pool.each(parts, [&](size_t part) {
        LaneConv conv = conv_;
        conv.map = map;
        conv.epilogue = epilogue;
        conv.row_begin = int32_t(rows * part / parts);
        conv.row_end = int32_t(rows * (part + 1) / parts);
        kernel_.run(conv);
      });
    }
  }

 private:
  void list_steps() {
    const size_t unit = depth_ * blocks_ * kBlock;
    for (int32_t y = 0; y < conv_.kernel_h; y++) {
      for (int32_t x = 0; x < conv_.kernel_w; x++) {
        const size_t pixel =
            size_t(y) * size_t(conv_.dilation_h) * size_t(in_.width) + size_t(x) * size_t(conv_.dilation_w);
        for (size_t i = 0; i < depth_; i++) steps_.push_back(int32_t(pixel * unit + i * blocks_ * kBlock));
      }
    }
  }

  // Which channel each lane of each row of a pixel holds; lanes behind the last output repeat it.
  void list_channels() {
    const size_t rows = depth_ * blocks_;
    first_ = Aligned<int32_t>(rows);
    index_ = Aligned<int32_t>(rows * kBlock);
    for (size_t row = 0; row < rows; row++) {
      const auto channel = [&](size_t lane) {
        const size_t c = std::min(row % blocks_ * kBlock + lane, size_t(out_.channels) - 1);
        return int32_t(c / outputs_ * depth_ + row / blocks_);
      };
      first_[row] = channel(0);
      for (size_t lane = 0; lane < kBlock; lane++) index_[row * kBlock + lane] = channel(lane) - first_[row];
      near_ &= channel(kBlock - 1) - first_[row] < kBlock;
    }
  }

  const float* spread(const float* image, float* to, Pool& pool) const {
    const size_t pixels = in_.pixels(), rows = depth_ * blocks_;
    const size_t parts = std::min(pixels, size_t(pool.size()));
    pool.each(parts, [&](size_t part) {
      const size_t begin = pixels * part / parts, end = pixels * (part + 1) / parts;
      Spread s;
      s.from = image + begin * size_t(in_.channels);
      s.to = to + begin * rows * kBlock;
      s.first = first_.data();
      s.index = index_.data();
      s.channels = in_.channels;
      s.blocks = int32_t(rows);
      s.pixels = end - begin;
      near_ ? kernel_.spread(s) : spread_far(s);
    });
    return to;
  }

  // Groups with many inputs for few outputs: a block reads more channels than one vector has.
  static void spread_far(const Spread& s) {
    for (size_t pixel = 0; pixel < s.pixels; pixel++) {
      const float* from = s.from + pixel * size_t(s.channels);
      float* to = s.to + pixel * size_t(s.blocks) * kBlock;
      for (size_t i = 0; i < size_t(s.blocks) * kBlock; i++) to[i] = from[s.first[i / kBlock] + s.index[i]];
    }
  }

  // [block][tap][depth][16]
  void pack(const Node& node) {
    const size_t steps = size_t(conv_.kernel_h) * size_t(conv_.kernel_w) * depth_;
    weights_ = Aligned<float>(blocks_ * steps * kBlock);
    for (size_t c = 0; c < size_t(out_.channels); c++) {
      for (size_t i = 0; i < steps; i++) {
        const size_t at = c * steps + i;
        weights_[(c / kBlock * steps + i) * kBlock + c % kBlock] =
            node.weight_f32 ? node.weight_f32[at] : scalar::half_to_float(node.weight_f16[at]);
      }
    }
  }

  const LaneKernel& kernel_;
  Shape in_, out_;
  size_t depth_, outputs_;  // channels of a group: inputs and outputs
  size_t blocks_;
  bool is_input_;     // the map is the input as it is
  bool near_ = true;  // one vector holds all channels that a block reads
  LaneConv conv_;
  EpilogueBinder epilogue_;
  std::vector<int32_t> steps_;
  Aligned<int32_t> first_, index_;
  Aligned<float> weights_;
};

}  // namespace

std::unique_ptr<const Layer> make_lane_layer(const Graph& graph, const Node& node, const KernelSet& kernels) {
  const Shape& out = graph.values[size_t(node.outputs[0])].shape;
  if (size_t(out.channels / node.window.groups) > kMostOutputs) return nullptr;
  // Offsets in the map have 32 bits, those of taps that no pixel has included.
  const Shape& in = graph.values[size_t(node.inputs[0])].shape;
  const Window& w = node.window;
  const size_t unit = (size_t(in.channels / w.groups)) * in_blocks(size_t(out.channels)) * kBlock;
  const size_t rows = size_t(in.height) + size_t(w.kernel_h) * size_t(w.dilation_h),
               columns = size_t(in.width) + size_t(w.kernel_w) * size_t(w.dilation_w);
  if (double(rows) * double(columns) * double(unit) > double(std::numeric_limits<int32_t>::max())) return nullptr;
  return std::make_unique<LaneLayer>(graph, node, kernels);
}

}  // namespace bitedge
