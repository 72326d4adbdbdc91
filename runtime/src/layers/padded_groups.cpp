#include "layers/padded_groups.h"

#include <algorithm>
#include <string>

#include "base/aligned.h"
#include "base/threads.h"
#include "kernels/kernels.h"
#include "layers/epilogue.h"

namespace bitedge {
namespace {

constexpr size_t kLeastOutputs = 4;  // of a group

size_t filled(size_t channels) { return (channels + kBlock - 1) / kBlock * kBlock; }
size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

// The weights of each group, and rows of 0 up to the next whole block.
template <typename T>
View<T> fill(const View<T>& from, size_t groups, size_t outputs, Aligned<T>* to) {
  if (!from) return {};
  const size_t row = from.size / (groups * outputs), rows = filled(outputs);
  *to = Aligned<T>(groups * rows * row);
  for (size_t g = 0; g < groups; g++) {
    std::copy_n(from.data + g * outputs * row, outputs * row, to->data() + g * rows * row);
  }
  return {to->data(), to->size()};
}

class PaddedGroups final : public Layer {
 public:
  PaddedGroups(const Graph& graph, const Node& node, const KernelSet& kernels, MakeLayer make)
      : Layer(std::string(kernels.name) + " " + (node.op == Op::kConv2d ? "conv2d" : "binary_conv2d") +
              " by filled groups"),
        elementwise_(kernels.rows->elementwise),
        out_(graph.values[size_t(node.outputs[0])].shape),
        groups_(size_t(node.window.groups)),
        outputs_(size_t(out_.channels) / groups_),
        epilogue_(graph, finishing(node)) {
    const Value& in = graph.values[size_t(node.inputs[0])];
    in_bytes_ = in.bytes();
    Shape shape = out_;
    shape.channels = int32_t(groups_ * filled(outputs_));
    inner_.values = {in, {"sums", Kind::kFloat, shape}};
    Node sums = node;
    sums.inputs = {0};
    sums.outputs = {1};
    sums.epilogue = Epilogue();
    sums.epilogue.emit_float = true;
    sums.bits = fill(node.bits, groups_, outputs_, &bits_);
    sums.weight_f32 = fill(node.weight_f32, groups_, outputs_, &weight_f32_);
    sums.weight_f16 = fill(node.weight_f16, groups_, outputs_, &weight_f16_);
    inner_.nodes = {sums};
    layer_ = make(inner_, inner_.nodes[0], kernels);
    bits_ = {};  // the layer has its own
    weight_f32_ = {};
    weight_f16_ = {};
  }

  bool made() const { return layer_ && layer_->owns_weights(); }

  // What the inner layer needs for one image, its output, and the same without the filling.
  size_t scratch_bytes(size_t, int threads) const override {
    return aligned(layer_->scratch_bytes(1, threads)) + aligned(inner_.values[1].bytes()) +
           out_.elements() * sizeof(float);
  }

  bool owns_weights() const override { return true; }

  void run(const Call& call, Pool& pool) const override {
    epilogue_.clear_tails(call);
    unsigned char* scratch = static_cast<unsigned char*>(call.scratch);
    float* sums = reinterpret_cast<float*>(scratch + aligned(layer_->scratch_bytes(1, pool.size())));
    float* dense = sums + aligned(inner_.values[1].bytes()) / sizeof(float);
    const size_t pixels = out_.pixels(), parts = pool.size() == 1 ? 1 : std::min(pixels, size_t(pool.size()) * 4);
    for (size_t image = 0; image < call.images; image++) {
      const void* input = static_cast<const unsigned char*>(call.inputs[0]) + image * in_bytes_;
      void* output = sums;
      Call inner;
      inner.inputs = &input;
      inner.outputs = &output;
      inner.scratch = scratch;
      layer_->run(inner, pool);
      const BoundEpilogue epilogue = epilogue_.bind(call, image);
      pool.each(parts, [&](size_t part) {
        const size_t begin = pixels * part / parts, end = pixels * (part + 1) / parts;
        pack(sums, dense, begin, end);
        elementwise_(dense, false, begin, end, epilogue);
      });
    }
  }

 private:
  void pack(const float* sums, float* dense, size_t begin, size_t end) const {
    const size_t rows = filled(outputs_);
    const float* from = sums + begin * groups_ * rows;
    float* to = dense + begin * groups_ * outputs_;
    for (size_t i = 0; i < (end - begin) * groups_; i++, from += rows, to += outputs_) {
      for (size_t c = 0; c < outputs_; c++) to[c] = from[c];
    }
  }

  // The epilogue on floats: limits::kTaps makes every sum of ±1 exact, so acc < t just when acc·1 - t < 0, for any t.
  Node finishing(const Node& node) {
    Node made = node;
    const View<int32_t> threshold = node.epilogue.threshold;
    if (!threshold) return made;
    one_ = Aligned<float>(threshold.size);
    negative_ = Aligned<float>(threshold.size);
    for (size_t c = 0; c < threshold.size; c++) {
      one_[c] = 1;
      negative_[c] = -float(threshold[c]);
    }
    EpilogueStep step;
    step.kind = StepKind::kFma;
    step.scale = {one_.data(), one_.size()};
    step.bias = {negative_.data(), negative_.size()};
    made.epilogue.threshold = {};
    made.epilogue.steps = {step};
    made.epilogue.emit_bits = true;
    return made;
  }

  void (*elementwise_)(const void*, bool, size_t, size_t, const BoundEpilogue&);
  Shape out_;
  size_t groups_, outputs_;  // output channels of a group
  Aligned<float> one_, negative_;
  EpilogueBinder epilogue_;
  size_t in_bytes_ = 0;
  Graph inner_;
  Aligned<uint64_t> bits_;
  Aligned<float> weight_f32_;
  Aligned<uint16_t> weight_f16_;
  std::unique_ptr<const Layer> layer_;
};

}  // namespace

std::unique_ptr<const Layer> make_padded_groups(const Graph& graph, const Node& node, const KernelSet& kernels,
                                                MakeLayer make) {
  const Shape& out = graph.values[size_t(node.outputs[0])].shape;
  const size_t outputs = size_t(out.channels / node.window.groups);
  if (outputs < kLeastOutputs || !kernels.rows) return nullptr;
  auto layer = std::make_unique<PaddedGroups>(graph, node, kernels, make);
  return layer->made() ? std::move(layer) : nullptr;
}

}  // namespace bitedge
