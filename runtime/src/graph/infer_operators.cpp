#include "graph/infer_operators.h"

#include "file/limits.h"
#include "graph/infer.h"
#include "graph/inference.h"

namespace bitedge::infer {
namespace {

enum class Weights { kFloats, kBits };

void convolution(Inference& in, Weights kind, uint64_t most_taps) {
  in.read_window(true, true);
  Node& node = in.node();
  const Window& window = node.window;
  const std::string name = in.tensor("weight");
  const gguf::Tensor& weight = in.tensors().raw(name);
  const uint64_t group = in.channels() / static_cast<uint64_t>(window.groups);
  const uint64_t out = weight.shape[0];
  if (out > limits::kValueElements || out % static_cast<uint64_t>(window.groups) != 0) {
    in.refuse("groups is ", window.groups, ", which does not divide ", out, " output channels");
  }
  // The kernel has at most 2^32 positions and a group at most 2^28 channels.
  const auto kh = static_cast<uint64_t>(window.kernel_h), kw = static_cast<uint64_t>(window.kernel_w);
  const uint64_t taps = kh * kw * group;
  if (taps > most_taps) in.refuse(taps, " taps per output, at most ", most_taps, " are allowed");
  if (kind == Weights::kBits) {
    node.bits = in.tensors().bits(name, {out, kh, kw, (group + 63) / 64}, group);
  } else if (weight.type == gguf::TensorType::kF16) {
    node.weight_f16 = in.tensors().f16(name, {out, kh, kw, group});
  } else {
    node.weight_f32 = in.tensors().f32(name, {out, kh, kw, group});
  }
  in.epilogue(in.slide(out), kind == Weights::kBits);
}

// `overhang` of the last rows and columns of the padding, which never count.
void read_overhang(Inference& in) {
  if (in.version() < 2 || !in.attributes().has(in.key("overhang"))) return;
  const std::vector<uint32_t> overhang = in.attributes().u32s(in.key("overhang"), 2);
  const Window& window = in.node().window;
  const int32_t pads[] = {window.pad_bottom, window.pad_right};
  for (size_t axis = 0; axis < 2; ++axis) {
    if (overhang[axis] > static_cast<uint32_t>(pads[axis])) {
      in.refuse("overhang is ", overhang[axis], ", more than the ", pads[axis], axis ? " columns" : " rows",
                " of padding there");
    }
  }
  in.node().overhang_bottom = static_cast<int32_t>(overhang[0]);
  in.node().overhang_right = static_cast<int32_t>(overhang[1]);
}

void norm(Inference& in) {
  in.node().eps = in.eps();
  in.node().weight_f32 = in.f32("weight", in.channels());
  in.node().offset = in.f32("bias", in.channels());
  in.add_value(Kind::kFloat, in.input(0).shape);
}

}  // namespace

void normalize(Inference& in) {
  in.expect_kind(true, false, false);
  in.node().scale = in.f32("scale", in.channels());
  in.node().offset = in.f32("offset", in.channels());
  in.add_value(Kind::kFloat, in.input(0).shape);
}

void image_conv2d(Inference& in) {
  in.expect_kind(true, false, false);
  convolution(in, Weights::kBits, limits::kImageTaps);
}

void binary_conv2d(Inference& in) {
  in.expect_kind(false, false, true);
  const int32_t pad = in.node().pad_value = in.attributes().i32(in.key("pad_value"));
  if (pad < -1 || pad > 1) in.refuse("pad_value is ", pad, ", expected -1, 0 or 1");
  convolution(in, Weights::kBits, limits::kTaps);
}

void conv2d(Inference& in) {
  in.expect_kind(false, true, false);
  convolution(in, Weights::kFloats, limits::kTaps);
}

void elementwise(Inference& in) {
  in.expect_kind(false, true, true);
  in.epilogue(in.input(0).shape, false);
}

void max_pool2d(Inference& in) {
  in.expect_kind(false, true, true);
  in.read_window(false, true);
  if (in.has("min_channels")) {
    if (in.kind() != Kind::kBits) in.refuse("min_channels needs an input of bits");
    in.node().bits = in.tensors().bits(in.tensor("min_channels"), {in.input(0).shape.words()}, in.channels());
  }
  const Shape out = in.slide(in.channels());
  in.expect_real_pixels(out);
  in.add_value(in.kind(), out);
}

void avg_pool2d(Inference& in) {
  in.expect_kind(false, true, false);
  in.read_window(false, false);
  in.node().count_include_pad = in.attributes().boolean(in.key("count_include_pad"));
  read_overhang(in);
  const Shape out = in.slide(in.channels());
  in.expect_real_pixels(out);
  in.add_value(Kind::kFloat, out);
}

void layer_norm(Inference& in) {
  in.expect_kind(false, true, false);
  norm(in);
}

void softmax(Inference& in) {
  in.expect_kind(false, true, false);
  in.add_value(Kind::kFloat, in.input(0).shape);
}

void concat(Inference& in) {
  in.expect_kind(false, true, true);
  Shape out = in.input(0).shape;
  uint64_t channels = 0;
  for (size_t i = 0; i < in.inputs(); ++i) {
    const Value& input = in.input(i);
    if (input.kind != in.kind()) {
      in.refuse("its input ", quoted(input.name), " is ", kind_name(input.kind), ", the first one ",
                kind_name(in.kind()));
    }
    if (input.shape.height != out.height || input.shape.width != out.width) {
      in.refuse("its input ", quoted(input.name), " is ", input.shape.height, " x ", input.shape.width,
                ", the first one ", out.height, " x ", out.width);
    }
    channels += static_cast<uint64_t>(input.shape.channels);
  }
  in.expect_size(static_cast<uint64_t>(out.height), static_cast<uint64_t>(out.width), channels);
  out.channels = static_cast<int32_t>(channels);
  in.add_value(in.kind(), out);
}

void gather_channels(Inference& in) {
  in.expect_kind(false, true, true);
  const std::string name = in.tensor("index");
  const uint64_t count = in.tensors().raw(name).shape[0];
  Shape out = in.input(0).shape;
  const View<int32_t> index = in.node().index = in.tensors().i32(name, {count});
  in.expect_size(static_cast<uint64_t>(out.height), static_cast<uint64_t>(out.width), count);
  const int32_t least = in.kind() == Kind::kFloat ? -1 : 0;
  for (size_t i = 0; i < index.size; ++i) {
    if (index[i] >= least && index[i] < out.channels) continue;
    in.refuse("index ", i, " is ", index[i], ", expected ", least, " to ", out.channels - 1);
  }
  out.channels = static_cast<int32_t>(count);
  in.add_value(in.kind(), out);
}

void group_norm(Inference& in) {
  in.expect_kind(false, true, false);
  in.read_groups();
  norm(in);
}

void adaptive_avg_pool2d(Inference& in) {
  in.expect_kind(false, true, false);
  const std::vector<uint32_t> size = in.attributes().u32s(in.key("size"), 2);
  for (const uint32_t extent : size) {
    if (extent == 0 || extent > limits::kWindow) {
      in.refuse("size is ", extent, ", expected 1 to ", limits::kWindow);
    }
  }
  in.expect_size(size[0], size[1], in.channels());
  in.add_value(Kind::kFloat,
               {static_cast<int32_t>(size[0]), static_cast<int32_t>(size[1]), in.input(0).shape.channels});
}

}  // namespace bitedge::infer
