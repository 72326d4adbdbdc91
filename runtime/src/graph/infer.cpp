#include "graph/infer.h"

#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "file/limits.h"

namespace bitedge {
namespace {

constexpr const char* kOps[] = {"normalize",  "image_conv2d", "binary_conv2d", "conv2d", "elementwise",
                                "max_pool2d", "avg_pool2d",   "layer_norm",    "softmax"};

// One node on its way from the file into the graph.
class Inference {
 public:
  Inference(Graph& graph, uint32_t index, Attributes& attributes, Tensors& tensors)
      : graph_(graph),
        index_(index),
        key_(join("bitedge.node.", index, ".")),
        tensor_(join("node.", index, ".")),
        attributes_(attributes),
        tensors_(tensors) {}

  void run();

 private:
  template <typename... T>
  [[noreturn]] void refuse(const T&... parts) const {
    throw Error(Status::kFormat,
                join("node ", index_, " (", kOps[static_cast<int>(node_.op)], " ", quoted(names_[0]), "): ", parts...));
  }

  const Value& input(size_t i) const { return graph_.values[static_cast<size_t>(node_.inputs[i])]; }
  Kind kind() const { return input(0).kind; }
  uint64_t channels() const { return static_cast<uint64_t>(input(0).shape.channels); }
  bool has(const char* tensor) const { return tensors_.has(tensor_ + tensor); }
  View<float> f32(const char* tensor, uint64_t count) { return tensors_.f32(tensor_ + tensor, {count}); }

  void read_head();
  void expect_inputs(size_t most) const;
  void expect_kind(bool uint8, bool floats, bool bits) const;
  void read_window(bool groups, bool dilation);
  Shape slide(uint64_t out_channels) const;
  uint64_t window_extent(uint64_t in, int64_t kernel, int64_t stride, int64_t before, int64_t after, int64_t dilation,
                         const char* what) const;
  void expect_real_pixels(int64_t in, uint64_t out, int64_t kernel, int64_t stride, int64_t before,
                          int64_t dilation) const;
  void convolution();
  void pool();
  void epilogue(Shape out, bool integer);
  void add_value(Kind kind, Shape shape);

  Graph& graph_;
  uint32_t index_;
  std::string key_, tensor_;
  Attributes& attributes_;
  Tensors& tensors_;
  Node node_;
  std::vector<std::string_view> names_;
};

void Inference::read_head() {
  const std::string_view op = attributes_.string(key_ + "op");
  size_t row = 0;
  while (row < std::size(kOps) && op != kOps[row]) ++row;
  if (row == std::size(kOps)) throw Error(Status::kFormat, join("node ", index_, " has the unknown op ", quoted(op)));
  node_.op = static_cast<Op>(row);
  names_ = attributes_.strings(key_ + "outputs");
  if (names_.empty()) throw Error(Status::kFormat, join("node ", index_, " has no outputs"));
  for (uint32_t value : attributes_.u32s(key_ + "inputs")) {
    if (value >= graph_.values.size()) refuse("input ", value, " is not an earlier value");
    node_.inputs.push_back(static_cast<int32_t>(value));
  }
}

void Inference::expect_inputs(size_t most) const {
  const size_t count = node_.inputs.size();
  if (count == 0 || count > most) {
    refuse(count, " inputs, expected ", most == 1 ? "1" : "1, and at most one residual");
  }
}

void Inference::expect_kind(bool uint8, bool floats, bool bits) const {
  const bool ok = kind() == Kind::kUint8 ? uint8 : kind() == Kind::kFloat ? floats : bits;
  if (ok) return;
  refuse("its input ", quoted(input(0).name), " is ", kind_name(kind()), ", expected ",
         uint8     ? "uint8"
         : !bits   ? "float32"
         : !floats ? "bits"
                   : "float32 or bits");
}

void Inference::read_window(bool groups, bool dilation) {
  const auto pair = [&](const char* name, uint32_t least, int32_t& first, int32_t& second) {
    const std::vector<uint32_t> numbers = attributes_.u32s(key_ + name, 2);
    for (uint32_t number : numbers) {
      if (number < least || number > limits::kWindow) {
        refuse(name, " is ", number, ", expected ", least, " to ", limits::kWindow);
      }
    }
    first = static_cast<int32_t>(numbers[0]);
    second = static_cast<int32_t>(numbers[1]);
  };
  Window& window = node_.window;
  pair("kernel", 1, window.kernel_h, window.kernel_w);
  pair("stride", 1, window.stride_h, window.stride_w);
  if (dilation) pair("dilation", 1, window.dilation_h, window.dilation_w);
  const std::vector<uint32_t> pads = attributes_.u32s(key_ + "pads", 4);
  for (uint32_t pad : pads) {
    if (pad > limits::kWindow) refuse("pads is ", pad, ", expected 0 to ", limits::kWindow);
  }
  window.pad_top = static_cast<int32_t>(pads[0]);
  window.pad_left = static_cast<int32_t>(pads[1]);
  window.pad_bottom = static_cast<int32_t>(pads[2]);
  window.pad_right = static_cast<int32_t>(pads[3]);
  if (!groups) return;
  const uint32_t count = attributes_.u32(key_ + "groups");
  if (count == 0 || channels() % count != 0) refuse("groups is ", count, ", which does not divide ", channels());
  window.groups = static_cast<int32_t>(count);
}

// Everything is at most 65,535 but `in`, which is below 2^28: 64 bits hold every product.
uint64_t Inference::window_extent(uint64_t in, int64_t kernel, int64_t stride, int64_t before, int64_t after,
                                  int64_t dilation, const char* what) const {
  const int64_t padded = static_cast<int64_t>(in) + before + after;
  const int64_t span = dilation * (kernel - 1) + 1;
  if (span > padded) refuse("the window spans ", span, " of a padded ", what, " of ", padded);
  return static_cast<uint64_t>((padded - span) / stride + 1);
}

Shape Inference::slide(uint64_t out_channels) const {
  const Window& w = node_.window;
  const Shape& in = input(0).shape;
  const uint64_t height = window_extent(static_cast<uint64_t>(in.height), w.kernel_h, w.stride_h, w.pad_top,
                                        w.pad_bottom, w.dilation_h, "height");
  const uint64_t width = window_extent(static_cast<uint64_t>(in.width), w.kernel_w, w.stride_w, w.pad_left, w.pad_right,
                                       w.dilation_w, "width");
  // Every extent is below 2^29 and at least 1, so a product of two fits; with the channels it may not.
  const auto padded_height = static_cast<uint64_t>(in.height) + static_cast<uint64_t>(w.pad_top + w.pad_bottom);
  const auto padded_width = static_cast<uint64_t>(in.width) + static_cast<uint64_t>(w.pad_left + w.pad_right);
  if (padded_height * padded_width > limits::kValueElements / channels()) {
    refuse("the padded input of ", padded_height, " x ", padded_width, " x ", channels(), " has more than ",
           limits::kValueElements, " elements");
  }
  if (height * width > limits::kValueElements || height * width * out_channels > limits::kValueElements) {
    refuse("the output of ", height, " x ", width, " x ", out_channels, " has more than ", limits::kValueElements,
           " elements");
  }
  return {static_cast<int32_t>(height), static_cast<int32_t>(width), static_cast<int32_t>(out_channels)};
}

// A pooling window that sees only padding has no maximum and no mean.
void Inference::expect_real_pixels(int64_t in, uint64_t out, int64_t kernel, int64_t stride, int64_t before,
                                   int64_t dilation) const {
  for (int64_t i = 0; i < static_cast<int64_t>(out); ++i) {
    const int64_t start = i * stride - before;
    const int64_t tap = start < 0 ? (-start + dilation - 1) / dilation : 0;  // the first one not before the map
    if (tap >= kernel || start + tap * dilation >= in) refuse("window ", i, " of the pooling sees only padding");
  }
}

void Inference::convolution() {
  const bool floats = node_.op == Op::kConv2d, image = node_.op == Op::kImageConv2d;
  expect_inputs(2);
  expect_kind(image, floats, !image && !floats);
  read_window(true, true);
  if (node_.op == Op::kBinaryConv2d) {
    node_.pad_value = attributes_.i32(key_ + "pad_value");
    if (node_.pad_value < -1 || node_.pad_value > 1) refuse("pad_value is ", node_.pad_value, ", expected -1, 0 or 1");
  }
  const Window& window = node_.window;
  const std::string name = tensor_ + "weight";
  const gguf::Tensor& weight = tensors_.raw(name);
  const uint64_t group = channels() / static_cast<uint64_t>(window.groups);
  const uint64_t out = weight.shape[0];
  if (out > limits::kValueElements || out % static_cast<uint64_t>(window.groups) != 0) {
    refuse("groups is ", window.groups, ", which does not divide ", out, " output channels");
  }
  // The kernel has at most 2^32 positions and a group at most 2^28 channels.
  const uint64_t taps = static_cast<uint64_t>(window.kernel_h) * static_cast<uint64_t>(window.kernel_w) * group;
  const uint64_t most = image ? limits::kImageTaps : limits::kTaps;
  if (taps > most) refuse(taps, " taps per output, at most ", most, " are allowed");
  const auto kh = static_cast<uint64_t>(window.kernel_h), kw = static_cast<uint64_t>(window.kernel_w);
  if (!floats) {
    node_.bits = tensors_.bits(name, {out, kh, kw, (group + 63) / 64}, group);
  } else if (weight.type == gguf::TensorType::kF16) {
    node_.weight_f16 = tensors_.f16(name, {out, kh, kw, group});
  } else {
    node_.weight_f32 = tensors_.f32(name, {out, kh, kw, group});
  }
  epilogue(slide(out), !floats);
}

void Inference::pool() {
  const bool max = node_.op == Op::kMaxPool2d;
  expect_inputs(1);
  expect_kind(false, true, max);
  read_window(false, max);
  if (!max) node_.count_include_pad = attributes_.boolean(key_ + "count_include_pad");
  if (max && has("min_channels")) {
    if (kind() != Kind::kBits) refuse("min_channels needs an input of bits");
    node_.bits = tensors_.bits(tensor_ + "min_channels", {input(0).shape.words()}, channels());
  }
  const Shape in = input(0).shape, out = slide(channels());
  const Window& w = node_.window;
  expect_real_pixels(in.height, static_cast<uint64_t>(out.height), w.kernel_h, w.stride_h, w.pad_top, w.dilation_h);
  expect_real_pixels(in.width, static_cast<uint64_t>(out.width), w.kernel_w, w.stride_w, w.pad_left, w.dilation_w);
  add_value(kind(), out);
}

void Inference::epilogue(Shape out, bool integer) {
  const auto count = static_cast<uint64_t>(out.channels);
  Epilogue& epilogue = node_.epilogue;
  const std::string_view form = attributes_.string(key_ + "epilogue");
  if (form == "threshold") {
    if (!integer) refuse("a threshold needs an integer convolution");
    if (node_.inputs.size() > 1) refuse("a threshold takes no residual");
    epilogue.threshold = tensors_.i32(tensor_ + "threshold", {count});
    epilogue.emit_bits = true;
    return add_value(Kind::kBits, out);
  }
  if (form != "affine") refuse("epilogue is ", quoted(form), ", expected 'threshold' or 'affine'");
  if (has("scale") != has("bias")) refuse("scale and bias come together or not at all");
  if (has("scale")) {
    epilogue.scale = f32("scale", count);
    epilogue.bias = f32("bias", count);
  }
  if (node_.inputs.size() > 1) {
    const Value& residual = input(1);
    if (residual.kind == Kind::kUint8) refuse("the residual ", quoted(residual.name), " is uint8");
    const Shape& shape = residual.shape;
    if (shape.height != out.height || shape.width != out.width || shape.channels != out.channels) {
      refuse("the residual ", quoted(residual.name), " is ", shape.height, " x ", shape.width, " x ", shape.channels,
             ", the output ", out.height, " x ", out.width, " x ", out.channels);
    }
  }
  const std::string_view activation = attributes_.string(key_ + "activation");
  if (activation == "relu") {
    epilogue.activation = Activation::kRelu;
  } else if (activation == "prelu") {
    epilogue.activation = Activation::kPrelu;
    const bool one = tensors_.raw(tensor_ + "slope").shape == std::vector<uint64_t>{1};
    epilogue.slope = f32("slope", one ? 1 : count);
  } else if (activation != "none") {
    refuse("activation is ", quoted(activation), ", expected 'none', 'relu' or 'prelu'");
  }
  const std::string_view emit = attributes_.string(key_ + "emit");
  epilogue.emit_float = emit == "float" || emit == "float+bits";
  epilogue.emit_bits = emit == "bits" || emit == "float+bits";
  if (!epilogue.emit_float && !epilogue.emit_bits) {
    refuse("emit is ", quoted(emit), ", expected 'float', 'bits' or 'float+bits'");
  }
  if (epilogue.emit_float) add_value(Kind::kFloat, out);
  if (epilogue.emit_bits) add_value(Kind::kBits, out);
}

void Inference::add_value(Kind kind, Shape shape) {
  const size_t position = node_.outputs.size();
  if (position >= names_.size()) refuse("names ", names_.size(), " outputs but makes more");
  node_.outputs.push_back(static_cast<int32_t>(graph_.values.size()));
  graph_.values.push_back({std::string(names_[position]), kind, shape});
}

void Inference::run() {
  read_head();
  switch (node_.op) {
    case Op::kImageConv2d:
    case Op::kBinaryConv2d:
    case Op::kConv2d:
      convolution();
      break;
    case Op::kMaxPool2d:
    case Op::kAvgPool2d:
      pool();
      break;
    case Op::kElementwise:
      expect_inputs(2);
      expect_kind(false, true, true);
      epilogue(input(0).shape, false);
      break;
    case Op::kNormalize:
      expect_inputs(1);
      expect_kind(true, false, false);
      node_.scale = f32("scale", channels());
      node_.offset = f32("offset", channels());
      add_value(Kind::kFloat, input(0).shape);
      break;
    case Op::kLayerNorm:
      expect_inputs(1);
      expect_kind(false, true, false);
      node_.eps = attributes_.f32(key_ + "eps");
      if (!std::isfinite(node_.eps) || node_.eps <= 0) refuse("eps is not a positive number");
      node_.weight_f32 = f32("weight", channels());
      node_.offset = f32("bias", channels());
      add_value(Kind::kFloat, input(0).shape);
      break;
    case Op::kSoftmax:
      expect_inputs(1);
      expect_kind(false, true, false);
      add_value(Kind::kFloat, input(0).shape);
      break;
  }
  if (node_.outputs.size() != names_.size()) {
    refuse("names ", names_.size(), " outputs but makes ", node_.outputs.size());
  }
  graph_.nodes.push_back(std::move(node_));
}

}  // namespace

const char* op_name(Op op) { return kOps[static_cast<int>(op)]; }

const char* kind_name(Kind kind) { return kind == Kind::kUint8 ? "uint8" : kind == Kind::kFloat ? "float32" : "bits"; }

uint64_t node_macs(const Graph& graph, const Node& node) {
  if (node.op != Op::kImageConv2d && node.op != Op::kBinaryConv2d && node.op != Op::kConv2d) return 0;
  const Window& w = node.window;
  const auto in = static_cast<uint64_t>(graph.values[static_cast<size_t>(node.inputs[0])].shape.channels / w.groups);
  const Shape& out = graph.values[static_cast<size_t>(node.outputs[0])].shape;
  return out.elements() * in * static_cast<uint64_t>(w.kernel_h) * static_cast<uint64_t>(w.kernel_w);
}

void infer_node(Graph& graph, uint32_t index, Attributes& attributes, Tensors& tensors) {
  Inference(graph, index, attributes, tensors).run();
}

}  // namespace bitedge
