#include "float_layers.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "bare_loop.h"

namespace bitedge {
namespace {

using testing::NodeCase;
using testing::StepCase;

constexpr int kFmaRounds = 4096;

NodeCase float_case(Op op, int32_t side, int32_t channels, int32_t kernel, int32_t stride, int32_t pad) {
  NodeCase c;
  c.op = op;
  c.input_kind = Kind::kFloat;
  c.in = {side, side, channels};
  c.outputs = channels;
  c.window.kernel_h = c.window.kernel_w = kernel;
  c.window.stride_h = c.window.stride_w = stride;
  c.window.pad_top = c.window.pad_left = c.window.pad_bottom = c.window.pad_right = pad;
  return c;
}

// With scale, bias and ReLU6 behind it, as in MobileNet.
FloatLayerCase grouped(const std::string& name, int32_t side, int32_t channels, int32_t groups) {
  FloatLayerCase layer{name, float_case(Op::kConv2d, side, channels, 3, 1, 1)};
  layer.node.window.groups = groups;
  layer.node.steps = {{StepKind::kClamp}};
  const double map = double(side) * side * channels;
  layer.macs = map * 9 * (channels / groups);
  layer.floats = 2 * map;
  return layer;
}

FloatLayerCase steps(const std::string& name, const std::vector<StepCase>& list, double macs) {
  FloatLayerCase layer{name, float_case(Op::kElementwise, 28, 128, 1, 1, 0)};
  layer.node.scale = false;
  layer.node.steps = list;
  layer.floats = 2.0 * 28 * 28 * 128;
  layer.macs = macs * 28 * 28 * 128;
  return layer;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

std::vector<FloatLayerCase> float_layers() {
  std::vector<FloatLayerCase> layers = {
      grouped("depthwise 56x56x64", 56, 64, 64),    grouped("depthwise 28x28x100", 28, 100, 100),
      grouped("depthwise 14x14x512", 14, 512, 512), grouped("groups of 4 28x28x128", 28, 128, 32),
      grouped("groups of 12 28x28x96", 28, 96, 8),
  };
  FloatLayerCase norm{"group_norm 28x28x128", float_case(Op::kGroupNorm, 28, 128, 1, 1, 0)};
  norm.node.window.groups = 32;
  norm.floats = 4.0 * 28 * 28 * 128;  // read for the mean, for the variance and for the result
  layers.push_back(norm);
  FloatLayerCase average{"avg_pool2d 56x56x64 /2", float_case(Op::kAvgPool2d, 56, 64, 3, 2, 0)};
  average.node.window.pad_bottom = average.node.window.pad_right = 2;  // of which 1 is overhang
  average.floats = (56 * 56 + 28.0 * 28) * 64;
  average.macs = 28.0 * 28 * 64 * 9;
  layers.push_back(average);
  FloatLayerCase adaptive{"adaptive_avg 56x56x64", float_case(Op::kAdaptiveAvgPool2d, 56, 64, 1, 1, 0)};
  adaptive.node.size_h = adaptive.node.size_w = 7;
  adaptive.floats = (56 * 56 + 49.0) * 64;
  adaptive.macs = 56.0 * 56 * 64;
  layers.push_back(adaptive);
  layers.push_back(steps("gate 28x28x128", {{StepKind::kMultiply, StepCase::kVector}}, 1));
  // As many operations as kernels/functions.inl has; a division counts as the 8 that it takes the place of.
  layers.push_back(steps("hardswish 28x28x128", {{StepKind::kHardswish}}, 12));
  layers.push_back(steps("sigmoid 28x28x128", {{StepKind::kSigmoid}}, 32));
  layers.push_back(steps("gelu 28x28x128", {{StepKind::kGelu}}, 64));
  return layers;
}

Roofline::Roofline(const FloatLayerCase& layer)
    : layer_(layer), from_(layer.node.in.elements(), 1.0f), to_(from_.size()) {}

void Roofline::measure() {
  auto start = std::chrono::steady_clock::now();
  const double fmas = bare_fmas(kFmaRounds);
  fma_ = std::min(fma_, seconds_since(start) / fmas);
  start = std::chrono::steady_clock::now();
  std::memcpy(to_.data(), from_.data(), from_.size() * sizeof(float));
  __asm__ volatile("" : : "r"(to_.data()) : "memory");
  copy_ = std::min(copy_, seconds_since(start) / (2.0 * double(from_.size())));
}

double Roofline::seconds() const { return std::max(layer_.macs * fma_, layer_.floats * copy_); }

}  // namespace bitedge
