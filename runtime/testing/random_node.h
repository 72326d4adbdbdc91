// A graph of one node with random weights and inputs, to be run by two sets of kernels and compared bit for bit.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <new>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "plan/program.h"
#include "run/context.h"

namespace bitedge::testing {

// Memory as the arena has it, on a boundary of 64 bytes, and of exactly the size that is asked for.
template <typename T>
struct LineAllocator {
  using value_type = T;
  LineAllocator() = default;
  template <typename U>
  LineAllocator(const LineAllocator<U>&) {}
  T* allocate(size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t(64))); }
  void deallocate(T* p, size_t) { ::operator delete(p, std::align_val_t(64)); }
  bool operator==(const LineAllocator&) const { return true; }
  bool operator!=(const LineAllocator&) const { return false; }
};
using Bytes = std::vector<unsigned char, LineAllocator<unsigned char>>;

// A step of an epilogue, and what an operand of it is.
struct StepCase {
  enum Operand { kFloats, kBits, kVector };
  StepKind kind;
  Operand operand = kFloats;
};

// Everything about a node that a test varies. Shapes follow; the seed makes the data.
struct NodeCase {
  Op op = Op::kBinaryConv2d;
  Shape in{8, 8, 64};
  int32_t outputs = 64;  // channels
  Window window;
  int32_t pad_value = 0;
  bool threshold = false, scale = true, emit_float = true, emit_bits = false, f16 = false, count_include_pad = false;
  bool min_channels = false;
  bool sparse = false;  // of a float input, most elements are zero, some of them -0
  enum Activation { kNone, kRelu, kPrelu } activation = kNone;
  std::vector<StepCase> steps;     // after scale, residual and activation
  int fmas_to_bits = 0;            // between the floats and the bits
  bool shifts = false;             // the fmas of `steps` and to the bits have scale 1
  std::vector<int32_t> others;     // channels of the further inputs of concat
  int32_t size_h = 0, size_w = 0;  // of adaptive_avg_pool2d
  bool shared_slope = false;
  Kind input_kind = Kind::kBits;
  int residual = 0;  // 0 none, 1 float, 2 bits
  size_t images = 1;
  uint32_t seed = 1;

  int32_t out_height() const {
    if (size_h) return size_h;
    return size(in.height, window.pad_top + window.pad_bottom, window.dilation_h, window.kernel_h, window.stride_h);
  }
  int32_t out_width() const {
    if (size_w) return size_w;
    return size(in.width, window.pad_left + window.pad_right, window.dilation_w, window.kernel_w, window.stride_w);
  }

  std::string text() const {
    std::ostringstream s;
    s << "op " << int(op) << " in " << in.height << "x" << in.width << "x" << in.channels << " out " << outputs
      << " kernel " << window.kernel_h << "x" << window.kernel_w << " stride " << window.stride_h << ","
      << window.stride_w << " pads " << window.pad_top << "," << window.pad_left << "," << window.pad_bottom << ","
      << window.pad_right << " dilation " << window.dilation_h << "," << window.dilation_w << " groups "
      << window.groups << " pad_value " << pad_value << " threshold " << threshold << " scale " << scale << " emit "
      << emit_float << emit_bits << " f16 " << f16 << " activation " << int(activation) << " input " << int(input_kind)
      << " residual " << residual << " images " << images << " seed " << seed << " steps";
    for (const StepCase& step : steps) s << " " << int(step.kind) << "," << int(step.operand);
    s << " fmas to bits " << fmas_to_bits << " shifts " << shifts;
    return s.str();
  }

 private:
  static int32_t size(int32_t in, int32_t pads, int32_t dilation, int32_t kernel, int32_t stride) {
    return (in + pads - dilation * (kernel - 1) - 1) / stride + 1;
  }
};

// Owns the data of the graph: its first values are the node's inputs.
class RandomNode {
 public:
  explicit RandomNode(const NodeCase& c) : case_(c), random_(c.seed) {
    const bool pool = c.op == Op::kMaxPool2d || c.op == Op::kAvgPool2d || c.op == Op::kAdaptiveAvgPool2d;
    const Shape out{c.out_height(), c.out_width(), pool ? c.in.channels : c.outputs};
    Node node;
    node.op = c.op;
    node.window = c.window;
    node.pad_value = c.pad_value;
    node.count_include_pad = c.count_include_pad;
    if (c.op == Op::kAvgPool2d) node.overhang_bottom = c.window.pad_bottom / 2;
    if (c.op == Op::kAvgPool2d) node.overhang_right = c.window.pad_right / 2;
    node.eps = 1e-3f;
    add_input(&node, c.input_kind, c.in);
    for (const int32_t channels : c.others) add_input(&node, c.input_kind, {c.in.height, c.in.width, channels});
    add_weights(&node, out);
    add_epilogue(&node, out);
    add_outputs(&node, out);
    graph_.nodes.push_back(node);
    graph_.output = node.outputs[0];
    for (const int32_t i : node.inputs) data_.push_back(random_value(graph_.values[size_t(i)], c.images));
    for (const Bytes& data : data_) inputs_.push_back(data.data());
  }

  const NodeCase& node_case() const { return case_; }
  const Graph& graph() const { return graph_; }
  const void* const* inputs() const { return inputs_.data(); }

 private:
  size_t add_input(Node* node, Kind kind, const Shape& shape) {
    node->inputs.push_back(int32_t(graph_.values.size()));
    graph_.values.push_back({"in" + std::to_string(graph_.values.size()), kind, shape});
    return node->inputs.size() - 1;
  }

  // Words of `channels` random bits, tail bits 0.
  void random_bits(uint64_t* to, size_t rows, size_t channels) {
    const size_t words = (channels + 63) / 64;
    for (size_t i = 0; i < rows * words; i++) {
      to[i] = uint64_t(random_()) << 32 | random_();
      if (i % words == words - 1 && channels % 64) to[i] &= (uint64_t(1) << channels % 64) - 1;
    }
  }

  float random_float() { return float(int32_t(random_())) * 0x1p-30f; }

  Bytes random_value(const Value& v, size_t images) {
    Bytes data(v.bytes() * images);
    if (v.kind == Kind::kBits) {
      random_bits(reinterpret_cast<uint64_t*>(data.data()), v.shape.pixels() * images, size_t(v.shape.channels));
    } else if (v.kind == Kind::kUint8) {
      for (unsigned char& byte : data) byte = static_cast<unsigned char>(random_());
    } else {
      for (size_t i = 0; i < data.size() / sizeof(float); i++) {
        const float x = random_float();
        reinterpret_cast<float*>(data.data())[i] = case_.sparse && random_() % 4 ? 0.0f * x : x;
      }
    }
    return data;
  }

  View<float> floats(size_t n) {
    floats_.emplace_back(n);
    for (float& x : floats_.back()) x = random_float();
    return {floats_.back().data(), n};
  }

  void add_weights(Node* node, const Shape& out) {
    const NodeCase& c = case_;
    const size_t taps = size_t(c.window.kernel_h) * size_t(c.window.kernel_w),
                 depth = size_t(c.in.channels / c.window.groups);
    const size_t rows = size_t(out.channels) * taps;
    if (c.op == Op::kBinaryConv2d || c.op == Op::kImageConv2d) {
      words_.emplace_back(rows * ((depth + 63) / 64));
      random_bits(words_.back().data(), rows, depth);
      node->bits = {words_.back().data(), words_.back().size()};
    } else if (c.op == Op::kConv2d && c.f16) {
      halves_.resize(rows * depth);
      for (uint16_t& half : halves_) half = uint16_t((random_() & 0x83ff) | (8 + random_() % 8) << 10);
      halves_[0] = 0x8001;  // subnormal
      node->weight_f16 = {halves_.data(), halves_.size()};
    } else if (c.op == Op::kConv2d) {
      node->weight_f32 = floats(rows * depth);
    } else if (c.op == Op::kLayerNorm || c.op == Op::kGroupNorm) {
      node->weight_f32 = floats(size_t(out.channels));
      node->offset = floats(size_t(out.channels));
    } else if (c.op == Op::kNormalize) {
      node->scale = floats(size_t(out.channels));
      node->offset = floats(size_t(out.channels));
    } else if (c.op == Op::kGatherChannels) {
      index_.resize(size_t(c.outputs));
      const int32_t least = c.input_kind == Kind::kFloat ? -1 : 0;
      for (int32_t& i : index_) i = least + int32_t(random_() % uint32_t(c.in.channels - least));
      node->index = {index_.data(), index_.size()};
    } else if (c.op == Op::kMaxPool2d && c.min_channels) {
      words_.emplace_back(out.words());
      random_bits(words_.back().data(), 1, size_t(out.channels));
      node->bits = {words_.back().data(), words_.back().size()};
    }
  }

  bool has_epilogue() const {
    return case_.op == Op::kBinaryConv2d || case_.op == Op::kImageConv2d || case_.op == Op::kConv2d ||
           case_.op == Op::kElementwise;
  }

  void add_epilogue(Node* node, const Shape& out) {
    if (!has_epilogue()) return;
    const NodeCase& c = case_;
    Epilogue& e = node->epilogue;
    const size_t n = size_t(out.channels);
    if (c.threshold) {
      // Around zero, where accumulators are; some channels are constant.
      const int32_t width = int32_t(std::sqrt(double(c.window.kernel_h * c.window.kernel_w * c.in.channels))) *
                                (c.op == Op::kImageConv2d ? 128 : 1) +
                            1;
      thresholds_.resize(n);
      for (int32_t& t : thresholds_) t = int32_t(random_() % uint32_t(2 * width + 1)) - width;
      thresholds_[0] = INT32_MAX;
      if (n > 1) thresholds_[n - 1] = INT32_MIN;
      e.threshold = {thresholds_.data(), n};
      e.emit_bits = true;
      return;
    }
    std::vector<EpilogueStep>* to = &e.steps;
    bool unit_scale = false;
    const auto add = [&](StepKind kind, StepCase::Operand operand = StepCase::kFloats) {
      EpilogueStep step;
      step.kind = kind;
      if (kind == StepKind::kFma) step.scale = floats(n);
      if (kind == StepKind::kFma) step.bias = floats(n);
      if (kind == StepKind::kFma && unit_scale)
        std::fill(floats_[floats_.size() - 2].begin(), floats_[floats_.size() - 2].end(), 1.0f);
      if (kind == StepKind::kPrelu) step.slope = floats(c.shared_slope ? 1 : n);
      if (kind == StepKind::kClamp) step.min = -0.5f;
      if (kind == StepKind::kClamp) step.max = 0.75f;
      if (kind == StepKind::kAdd || kind == StepKind::kMultiply) {
        const Shape shape = operand == StepCase::kVector ? Shape{1, 1, out.channels} : out;
        step.input = add_input(node, operand == StepCase::kBits ? Kind::kBits : Kind::kFloat, shape);
      }
      to->push_back(step);
    };
    if (c.scale) add(StepKind::kFma);
    if (c.residual) add(StepKind::kAdd, c.residual == 1 ? StepCase::kFloats : StepCase::kBits);
    if (c.activation != NodeCase::kNone) {
      add(c.activation == NodeCase::kRelu ? StepKind::kRelu : StepKind::kPrelu);
    }
    unit_scale = c.shifts;
    for (const StepCase& step : c.steps) add(step.kind, step.operand);
    to = &e.steps_to_bits;
    for (int k = 0; k < c.fmas_to_bits; k++) add(StepKind::kFma);
    e.emit_float = c.emit_float;
    e.emit_bits = c.emit_bits;
  }

  void add_outputs(Node* node, const Shape& out) {
    const Epilogue& e = node->epilogue;
    const auto add = [&](const char* name, Kind kind) {
      node->outputs.push_back(int32_t(graph_.values.size()));
      graph_.values.push_back({name, kind, out});
    };
    const bool keeps_kind = case_.op == Op::kMaxPool2d || case_.op == Op::kConcat || case_.op == Op::kGatherChannels;
    if (!has_epilogue()) return add("out", keeps_kind ? case_.input_kind : Kind::kFloat);
    if (e.emit_float) add("floats", Kind::kFloat);
    if (e.emit_bits) add("bits", Kind::kBits);
  }

  NodeCase case_;
  std::mt19937 random_;
  Graph graph_;
  std::deque<std::vector<float>> floats_;
  std::deque<std::vector<uint64_t>> words_;
  std::vector<uint16_t> halves_;
  std::vector<int32_t> thresholds_, index_;
  std::vector<Bytes> data_;
  std::vector<const void*> inputs_;
};

// One set of kernels on a node. Memory is of exactly the planned size, so that a sanitizer sees what lies outside.
class Runner {
 public:
  Runner(const RandomNode& node, const char* kernels, int threads)
      : program_(Program::make(node.graph(), kernels)), pool_(threads) {
    const size_t images = node.node_case().images;
    for (const int32_t v : node.graph().nodes[0].outputs) {
      outputs_.emplace_back(node.graph().values[size_t(v)].bytes() * images, 0xa5);
    }
    for (Bytes& output : outputs_) output_data_.push_back(output.data());
    scratch_.assign(layer().scratch_bytes(images, threads), 0x5a);
    call_.images = images;
    call_.inputs = node.inputs();
    call_.outputs = output_data_.data();
    call_.scratch = scratch_.data();
  }

  void run() { layer().run(call_, pool_); }
  std::string kernel() const { return program_->node_kernel(0); }
  const std::vector<Bytes>& outputs() const { return outputs_; }

 private:
  const Layer& layer() const { return *program_->steps(true)[0].layer; }

  std::unique_ptr<const Program> program_;
  Pool pool_;
  std::vector<Bytes> outputs_;
  std::vector<void*> output_data_;
  Bytes scratch_;
  Call call_;
};

}  // namespace bitedge::testing
