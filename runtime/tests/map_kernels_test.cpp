// Epilogues, and the operators without weights, by every set of kernels against the scalar reference, bit for bit.
#include "compare_kernels.h"

using namespace bitedge;
using namespace bitedge::testing;

TEST(random_rows) {
  Dice d(20240604);
  for (uint32_t i = 0; i < 120; i++) {
    NodeCase c;
    c.seed = i;
    constexpr Op kOps[] = {Op::kNormalize, Op::kElementwise, Op::kMaxPool2d,
                           Op::kAvgPool2d, Op::kLayerNorm,   Op::kSoftmax};
    c.op = kOps[i % 6];
    c.in = {d.between(1, 12), d.between(1, 12), d.between(1, d.coin() ? 20 : 200)};
    c.outputs = c.in.channels;
    c.images = size_t(d.between(1, 3));
    c.input_kind = c.op == Op::kNormalize ? Kind::kUint8 : Kind::kFloat;
    if (c.op == Op::kMaxPool2d || c.op == Op::kElementwise) c.input_kind = d.coin() ? Kind::kBits : Kind::kFloat;
    if (c.op == Op::kMaxPool2d || c.op == Op::kAvgPool2d) {
      c.window = random_window(&d, c.in);
      // Every window holds a real pixel.
      c.window.pad_top = std::min(c.window.pad_top, c.window.kernel_h - 1);
      c.window.pad_left = std::min(c.window.pad_left, c.window.kernel_w - 1);
      c.window.pad_bottom = c.window.pad_right = 0;
      c.window.dilation_h = c.window.dilation_w = 1;
      if (c.in.height + c.window.pad_top < c.window.kernel_h || c.in.width + c.window.pad_left < c.window.kernel_w)
        continue;
      c.count_include_pad = d.coin();
      c.min_channels = c.input_kind == Kind::kBits && d.coin();
    }
    if (c.op == Op::kElementwise) random_epilogue(&d, &c, false);
    compare(c);
  }
}

// One step of each kind behind every operator that has an epilogue, in whole blocks of channels and not.
TEST(every_step_of_an_epilogue) {
  for (int32_t kind = 0; kind <= int32_t(StepKind::kGeluTanh); kind++) {
    for (const int32_t channels : {13, 32, 70}) {
      NodeCase c = binary(5, 64, channels, 3, 1);
      c.emit_bits = kind % 2;
      c.seed = uint32_t(kind);
      c.steps = {{StepKind(kind), StepKind(kind) == StepKind::kMultiply ? StepCase::kVector : StepCase::kFloats}};
      compare(c);
      c.op = Op::kConv2d;
      c.input_kind = Kind::kFloat;
      compare(c);
      c.op = Op::kImageConv2d;
      c.input_kind = Kind::kUint8;
      c.in.channels = 3;
      compare(c);
      c.op = Op::kElementwise;
      c.input_kind = kind % 2 ? Kind::kBits : Kind::kFloat;
      c.window = Window();
      c.in.channels = channels;
      c.images = 2;
      compare(c);
    }
  }
}

// RPReLU behind a residual, as ReActNet has it: shift, prelu, shift; and before the bits another shift, RSign. Also
// with scales in place of the shifts, and with some of the steps.
TEST(shifted_activations) {
  for (const int32_t channels : {16, 64, 80, 100}) {
    for (const int flags : {0, 1, 2, 3}) {
      const bool bits = flags & 1;
      NodeCase c = binary(7, 128, channels, 3, 1);
      c.shifts = flags & 2;
      c.emit_bits = bits;
      c.steps = {{StepKind::kFma}, {StepKind::kPrelu}, {StepKind::kFma}};
      c.fmas_to_bits = bits;  // and RSign
      compare(c);
      c.residual = 0;
      compare(c);
      c.scale = false;
      compare(c);
      c = binary(7, 128, channels, 3, 1);
      c.shifts = flags & 2;
      c.fmas_to_bits = bits;
      compare(c);
      c.steps = {{StepKind::kPrelu}};
      compare(c);
    }
  }
}

TEST(random_maps_of_version_2) {
  Dice d(20240605);
  for (uint32_t i = 0; i < 120; i++) {
    NodeCase c;
    c.seed = i;
    constexpr Op kOps[] = {Op::kConcat, Op::kGatherChannels, Op::kGroupNorm, Op::kAdaptiveAvgPool2d, Op::kAvgPool2d};
    c.op = kOps[i % 5];
    c.in = {d.between(1, 9), d.between(1, 9), d.between(1, d.coin() ? 20 : 200)};
    c.outputs = c.in.channels;
    c.images = size_t(d.between(1, 3));
    c.input_kind = i % 5 < 2 && d.coin() ? Kind::kBits : Kind::kFloat;
    if (c.op == Op::kConcat) {
      for (int32_t more = d.between(1, 4); more > 0; more--) {
        c.others.push_back(d.coin() ? 64 * d.between(1, 3) : d.between(1, 100));
        c.outputs += c.others.back();
      }
    }
    if (c.op == Op::kGatherChannels) c.outputs = d.between(1, 200);
    if (c.op == Op::kGroupNorm) {
      c.window.groups = d.between(1, 8);
      c.in.channels = c.outputs = c.window.groups * d.between(1, 40);
    }
    if (c.op == Op::kAdaptiveAvgPool2d) {
      c.size_h = d.between(1, 8);
      c.size_w = d.between(1, 8);
    }
    if (c.op == Op::kAvgPool2d) {  // as ceil_mode makes it: the last window reaches over the edge
      c.window.kernel_h = c.window.kernel_w = 3;
      c.window.stride_h = c.window.stride_w = 2;
      c.in.height = c.in.width = 2 * d.between(2, 5);
      c.window.pad_top = c.window.pad_left = 1;
      c.window.pad_bottom = c.window.pad_right = d.between(1, 2);
      c.count_include_pad = d.coin();
    }
    compare(c);
  }
}
