#include "testing/random_network.h"

#include <cmath>

#include "base/error.h"

namespace bitedge {
namespace {

size_t index(int32_t i) { return size_t(i); }

}  // namespace

const std::vector<std::string>& RandomNetwork::names() {
  static const std::vector<std::string> names = {"binarynet", "xnornet", "birealnet18"};
  return names;
}

std::unique_ptr<RandomNetwork> RandomNetwork::make(const std::string& name, const NetworkSize& size) {
  std::unique_ptr<RandomNetwork> network(new RandomNetwork(size));
  network->graph_.name = name;
  // Nodes are filled in place, so they must not move.
  network->graph_.nodes.reserve(64);
  network->graph_.values.reserve(128);
  if (name == "binarynet") {
    network->binarynet(size);
  } else if (name == "xnornet") {
    network->xnornet(size);
  } else if (name == "birealnet18") {
    network->birealnet18(size);
  } else {
    throw Error(Status::kArgument, "there is no network '" + name + "'; choose one of binarynet, xnornet, birealnet18");
  }
  network->graph_.output = network->graph_.nodes.back().outputs[0];
  return network;
}

std::vector<unsigned char> RandomNetwork::random_input(size_t images) {
  std::vector<unsigned char> data(images * graph_.values[0].shape.elements());
  for (unsigned char& byte : data) byte = static_cast<unsigned char>(random_());
  return data;
}

// Twelve uniform numbers: the same on every machine, which std::normal_distribution is not.
double RandomNetwork::normal() {
  double sum = -6;
  for (int i = 0; i < 12; i++) sum += double(random_()) / 4294967296.0;
  return sum;
}

View<float> RandomNetwork::floats(size_t n, double spread, double middle, double disturbance) {
  floats_.emplace_back(n);
  for (float& x : floats_.back()) {
    x = float((middle + spread * normal()) * (1 + disturbance));
    disturbance = -disturbance;
  }
  return {floats_.back().data(), n};
}

View<uint64_t> RandomNetwork::bits(size_t rows, size_t channels) {
  const size_t words = (channels + 63) / 64;
  bits_.emplace_back(rows * words);
  std::vector<uint64_t>& data = bits_.back();
  for (size_t i = 0; i < data.size(); i++) {
    data[i] = uint64_t(random_()) << 32 | random_();
    if (i % words == words - 1 && channels % 64) data[i] &= (uint64_t(1) << channels % 64) - 1;
  }
  return {data.data(), data.size()};
}

int32_t RandomNetwork::input(int32_t side) {
  graph_.values.push_back({"image", Kind::kUint8, {side, side, 3}});
  return 0;
}

Node& RandomNetwork::add(Op op, int32_t from) {
  graph_.nodes.emplace_back();
  Node& node = graph_.nodes.back();
  node.op = op;
  node.inputs = {from};
  return node;
}

int32_t RandomNetwork::emit(Node* node, Kind kind, const Shape& shape) {
  const int32_t value = int32_t(graph_.values.size());
  graph_.values.push_back({"v" + std::to_string(value), kind, shape});
  node->outputs.push_back(value);
  return value;
}

void RandomNetwork::window(Node* node, const Conv& c) {
  Window& w = node->window;
  w.kernel_h = w.kernel_w = c.kernel;
  w.stride_h = w.stride_w = c.stride;
  w.pad_top = w.pad_left = w.pad_bottom = w.pad_right = c.pad;
}

Shape RandomNetwork::after(int32_t from, const Conv& c) const {
  const Shape& in = graph_.values[index(from)].shape;
  const auto size = [&](int32_t n) {
    if (n + 2 * c.pad >= c.kernel) return (n + 2 * c.pad - c.kernel) / c.stride + 1;
    throw Error(Status::kArgument, "an image of that size is too small for " + graph_.name);
  };
  return {size(in.height), size(in.width), c.outputs};
}

EpilogueStep& RandomNetwork::add_step(Node* node, StepKind kind) {
  node->epilogue.steps.emplace_back();
  node->epilogue.steps.back().kind = kind;
  return node->epilogue.steps.back();
}

void RandomNetwork::add_residual(Node* node, int32_t residual) {
  if (residual < 0) return;
  add_step(node, StepKind::kAdd).input = node->inputs.size();
  node->inputs.push_back(residual);
}

// What comes out of the sums has a spread of about one.
void RandomNetwork::set_scale(Node* node, int32_t outputs, double spread) {
  EpilogueStep& step = add_step(node, StepKind::kFma);
  step.scale = floats(index(outputs), 0.2 / spread, 1 / spread);
  step.bias = floats(index(outputs), 0.1);
}

int32_t RandomNetwork::normalize(int32_t from) {
  Node& node = add(Op::kNormalize, from);
  node.scale = floats(3, 0.0005, 0.017);
  node.offset = floats(3, 0.1, -2);
  return emit(&node, Kind::kFloat, graph_.values[index(from)].shape);
}

int32_t RandomNetwork::conv(int32_t from, const Conv& c, bool relu, int32_t residual, bool with_bits) {
  const size_t depth = index(c.kernel) * index(c.kernel) * index(graph_.values[index(from)].shape.channels);
  const Shape out = after(from, c);
  Node& node = add(Op::kConv2d, from);
  window(&node, c);
  node.weight_f32 = floats(index(c.outputs) * depth, 1 / std::sqrt(double(depth)), 0, disturbance_);
  set_scale(&node, c.outputs, 1);
  add_residual(&node, residual);
  if (relu) add_step(&node, StepKind::kRelu);
  node.epilogue.emit_float = true;
  node.epilogue.emit_bits = with_bits;
  const int32_t value = emit(&node, Kind::kFloat, out);
  if (with_bits) emit(&node, Kind::kBits, out);
  return value;
}

int32_t RandomNetwork::dense(int32_t from, int32_t outputs) {
  const Shape& in = graph_.values[index(from)].shape;
  return conv(from, {in.height, 1, 0, outputs});
}

int32_t RandomNetwork::image(int32_t from, const Conv& c) {
  const size_t depth = index(c.kernel) * index(c.kernel) * 3;
  const Shape out = after(from, c);
  Node& node = add(Op::kImageConv2d, from);
  window(&node, c);
  node.bits = bits(index(c.outputs) * index(c.kernel) * index(c.kernel), 3);
  thresholds_.emplace_back(index(c.outputs));
  for (int32_t& t : thresholds_.back()) t = int32_t(30 * std::sqrt(double(depth)) * normal());
  node.epilogue.threshold = {thresholds_.back().data(), thresholds_.back().size()};
  node.epilogue.emit_bits = true;
  return emit(&node, Kind::kBits, out);
}

int32_t RandomNetwork::binary(int32_t from, const Conv& c) {
  const int32_t channels = graph_.values[index(from)].shape.channels;
  const Shape out = after(from, c);
  Node& node = add(Op::kBinaryConv2d, from);
  window(&node, c);
  node.bits = bits(index(c.outputs) * index(c.kernel) * index(c.kernel), index(channels));
  thresholds_.emplace_back(index(c.outputs));
  const double spread = std::sqrt(double(c.kernel) * c.kernel * channels);
  for (int32_t& t : thresholds_.back()) t = int32_t(0.3 * spread * normal());
  node.epilogue.threshold = {thresholds_.back().data(), thresholds_.back().size()};
  node.epilogue.emit_bits = true;
  return emit(&node, Kind::kBits, out);
}

int32_t RandomNetwork::binary_float(int32_t from, const Conv& c, int32_t residual, bool with_bits, bool relu) {
  const int32_t channels = graph_.values[index(from)].shape.channels;
  const Shape out = after(from, c);
  Node& node = add(Op::kBinaryConv2d, from);
  window(&node, c);
  node.bits = bits(index(c.outputs) * index(c.kernel) * index(c.kernel), index(channels));
  set_scale(&node, c.outputs, std::sqrt(double(c.kernel) * c.kernel * channels));
  add_residual(&node, residual);
  if (relu) add_step(&node, StepKind::kRelu);
  node.epilogue.emit_float = true;
  node.epilogue.emit_bits = with_bits;
  const int32_t value = emit(&node, Kind::kFloat, out);
  if (with_bits) emit(&node, Kind::kBits, out);
  return value;
}

int32_t RandomNetwork::max_pool(int32_t from, int32_t kernel, int32_t stride, int32_t pad) {
  const Value in = graph_.values[index(from)];
  const Conv c = {kernel, stride, pad, in.shape.channels};
  Node& node = add(Op::kMaxPool2d, from);
  window(&node, c);
  return emit(&node, in.kind, after(from, c));
}

int32_t RandomNetwork::avg_pool(int32_t from, int32_t kernel, int32_t stride) {
  const Conv c = {kernel, stride, 0, graph_.values[index(from)].shape.channels};
  Node& node = add(Op::kAvgPool2d, from);
  window(&node, c);
  return emit(&node, Kind::kFloat, after(from, c));
}

int32_t RandomNetwork::sign(int32_t from, bool scale) {
  const Shape shape = graph_.values[index(from)].shape;
  Node& node = add(Op::kElementwise, from);
  if (scale) set_scale(&node, shape.channels, 1);
  if (scale) node.epilogue.steps[0].bias = floats(index(shape.channels), 0.1, -0.8);  // after a ReLU
  node.epilogue.emit_bits = true;
  return emit(&node, Kind::kBits, shape);
}

void RandomNetwork::binarynet(const NetworkSize& size) {
  const int32_t side = size.image ? size.image : 32, width = size.width ? size.width : 128;
  int32_t x = image(input(side), {3, 1, 0, width});
  int32_t channels[] = {width, 2 * width, 2 * width, 4 * width, 4 * width};
  for (int i = 0; i < 5; i++) {
    x = binary(x, {3, 1, 1, channels[i]});
    if (i % 2 == 0) x = max_pool(x, 2, 2, 0);
  }
  const int32_t rest = graph_.values[index(x)].shape.height;
  x = binary(x, {rest, 1, 0, 8 * width});
  x = binary(x, {1, 1, 0, 8 * width});
  binary_float(x, {1, 1, 0, size.classes ? size.classes : 10});
}

void RandomNetwork::xnornet(const NetworkSize& size) {
  const int32_t side = size.image ? size.image : 224, width = size.width ? size.width : 96;
  const auto channels = [&](int32_t of_96) { return width * of_96 / 96; };
  int32_t x = conv(normalize(input(side)), {11, 4, 5, width}, true);
  x = sign(max_pool(x, 3, 2, 0), true);
  x = max_pool(binary(x, {5, 1, 2, channels(256)}), 3, 2, 0);
  x = binary(x, {3, 1, 1, channels(384)});
  x = binary(x, {3, 1, 1, channels(384)});
  x = max_pool(binary(x, {3, 1, 1, channels(256)}), 3, 2, 0);
  x = binary(x, {graph_.values[index(x)].shape.height, 1, 0, channels(4096)});
  x = binary_float(x, {1, 1, 0, channels(4096)}, -1, false, true);
  dense(x, size.classes ? size.classes : 1000);
}

void RandomNetwork::birealnet18(const NetworkSize& size) {
  const int32_t side = size.image ? size.image : 224, width = size.width ? size.width : 64;
  int32_t real = max_pool(conv(normalize(input(side)), {7, 2, 3, width}), 3, 2, 1);
  int32_t bit = sign(real, false);
  for (int block = 0; block < 16; block++) {
    const int32_t channels = width << (block / 4);
    const bool last = block == 15;
    if (block % 4 == 0 && block > 0) {
      const int32_t sum = binary_float(bit, {3, 2, 1, channels});
      real = conv(avg_pool(real, 2, 2), {1, 1, 0, channels}, false, sum, true);
    } else {
      real = binary_float(bit, {3, 1, 1, channels}, real, !last);
    }
    bit = real + 1;
  }
  const int32_t rest = graph_.values[index(real)].shape.height;
  dense(avg_pool(real, rest, 1), size.classes ? size.classes : 1000);
}

}  // namespace bitedge
