#include "graph/operators.h"

#include <initializer_list>
#include <iterator>

#include "base/json.h"
#include "graph/infer.h"
#include "graph/infer_operators.h"
#include "kernels/kernels.h"
#include "kernels/scalar.h"
#include "layers/binary_layer.h"
#include "layers/channel_layer.h"
#include "layers/float_layer.h"
#include "layers/image_layer.h"
#include "layers/norm_layer.h"
#include "layers/row_layer.h"

namespace bitedge {
namespace {

void numbers(JsonWriter& json, const char* key, std::initializer_list<int32_t> list) {
  json.key(key).open('[');
  for (int32_t number : list) json.integer(number);
  json.close(']');
}

void window(JsonWriter& json, const Window& w) {
  numbers(json, "kernel_size", {w.kernel_h, w.kernel_w});
  numbers(json, "stride", {w.stride_h, w.stride_w});
  numbers(json, "pads", {w.pad_top, w.pad_left, w.pad_bottom, w.pad_right});
}

// "threshold", or the steps in order and what comes out, such as "fma+add+relu+float".
void epilogue(JsonWriter& json, const Node& node) {
  std::string text;
  const auto add = [&](const char* name) { text += (text.empty() ? "" : "+") + std::string(name); };
  if (node.epilogue.threshold) {
    add("threshold");
  } else {
    for (const EpilogueStep& step : node.epilogue.steps) add(step_name(step.kind));
    if (node.epilogue.emit_float) add("float");
    if (node.epilogue.emit_bits) add("bits");
  }
  json.key("epilogue").string(text);
}

void convolution(JsonWriter& json, const Node& node) {
  window(json, node.window);
  numbers(json, "dilation", {node.window.dilation_h, node.window.dilation_w});
  json.key("groups").integer(node.window.groups);
  if (node.op == Op::kBinaryConv2d) json.key("pad_value").integer(node.pad_value);
  epilogue(json, node);
}

void max_pool(JsonWriter& json, const Node& node) {
  window(json, node.window);
  numbers(json, "dilation", {node.window.dilation_h, node.window.dilation_w});
}

void avg_pool(JsonWriter& json, const Node& node) {
  window(json, node.window);
  json.key("count_include_pad").boolean(node.count_include_pad);
  if (node.overhang_bottom || node.overhang_right) {
    numbers(json, "overhang", {node.overhang_bottom, node.overhang_right});
  }
}

void groups(JsonWriter& json, const Node& node) { json.key("groups").integer(node.window.groups); }

constexpr size_t kAny = Operator::kAny;

// In the order of Op.
constexpr Operator kOperators[] = {
    {Op::kNormalize, "normalize", 1, 1, 1, infer::normalize, make_row_layer, scalar::normalize, nullptr},
    {Op::kImageConv2d, "image_conv2d", 1, 1, kAny, infer::image_conv2d, make_image_layer, scalar::image_conv2d,
     convolution},
    {Op::kBinaryConv2d, "binary_conv2d", 1, 1, kAny, infer::binary_conv2d, make_binary_layer, scalar::binary_conv2d,
     convolution},
    {Op::kConv2d, "conv2d", 1, 1, kAny, infer::conv2d, make_float_layer, scalar::conv2d, convolution},
    {Op::kElementwise, "elementwise", 1, 1, kAny, infer::elementwise, make_row_layer, scalar::elementwise, epilogue},
    {Op::kMaxPool2d, "max_pool2d", 1, 1, 1, infer::max_pool2d, make_row_layer, scalar::max_pool2d, max_pool},
    {Op::kAvgPool2d, "avg_pool2d", 1, 1, 1, infer::avg_pool2d, make_row_layer, scalar::avg_pool2d, avg_pool},
    {Op::kLayerNorm, "layer_norm", 1, 1, 1, infer::layer_norm, make_row_layer, scalar::layer_norm, nullptr},
    {Op::kSoftmax, "softmax", 1, 1, 1, infer::softmax, make_row_layer, scalar::softmax, nullptr},
    {Op::kConcat, "concat", 2, 2, kAny, infer::concat, make_concat_layer, scalar::concat, nullptr},
    {Op::kGatherChannels, "gather_channels", 2, 1, 1, infer::gather_channels, make_gather_layer,
     scalar::gather_channels, nullptr},
    {Op::kGroupNorm, "group_norm", 2, 1, 1, infer::group_norm, make_norm_layer, scalar::group_norm, groups},
    {Op::kAdaptiveAvgPool2d, "adaptive_avg_pool2d", 2, 1, 1, infer::adaptive_avg_pool2d, make_row_layer,
     scalar::adaptive_avg_pool2d, nullptr},
};

constexpr bool in_order() {
  for (size_t i = 0; i < std::size(kOperators); i++) {
    if (kOperators[i].op != Op(i)) return false;
  }
  return std::size(kOperators) == size_t(Op::kAdaptiveAvgPool2d) + 1;
}
static_assert(in_order());

}  // namespace

const Operator& operator_of(Op op) { return kOperators[size_t(op)]; }

const Operator* find_operator(std::string_view name) {
  for (const Operator& row : kOperators) {
    if (name == row.name) return &row;
  }
  return nullptr;
}

}  // namespace bitedge
