// Every set of kernels that this machine has, against the scalar reference, bit for bit: integers and epilogues, and
// float convolutions too, since their order of summation is fixed. Sizes are grouped by the reason for which they could
// fail.
#include "kernels/kernels.h"

#include <cmath>
#include <cstdlib>
#include <map>
#include <set>

#include "base/cpu.h"
#include "check.h"
#include "kernels/table.h"
#include "testing/random_node.h"

using namespace bitedge;
using namespace bitedge::testing;

namespace {

// Which operators each set has really run, not fallen back from.
std::map<std::string, std::set<std::string>>& covered() {
  static std::map<std::string, std::set<std::string>> sets;
  return sets;
}

void compare(const NodeCase& c) {
  const RandomNode node(c);
  Runner reference(node, "scalar", 1);
  reference.run();
  for (const KernelSet* set : available_kernels()) {
    for (const int threads : {1, 2}) {
      Runner runner(node, set->name, threads);
      runner.run();
      if (runner.outputs() != reference.outputs()) {
        fail(__FILE__, __LINE__,
             std::string(set->name) + " with " + std::to_string(threads) + " threads differs on: " + c.text());
      }
      const std::string kernel = runner.kernel();
      covered()[kernel.substr(0, kernel.find(' '))].insert(kernel.substr(kernel.find(' ') + 1));
    }
  }
}

NodeCase binary(int32_t side, int32_t in, int32_t out, int32_t kernel, int32_t pad) {
  NodeCase c;
  c.in = {side, side, in};
  c.outputs = out;
  c.window.kernel_h = c.window.kernel_w = kernel;
  c.window.pad_top = c.window.pad_left = c.window.pad_bottom = c.window.pad_right = pad;
  c.emit_bits = true;
  c.residual = 1;
  return c;
}

class Dice {
 public:
  explicit Dice(uint32_t seed) : random_(seed) {}
  int32_t upto(int32_t most) { return int32_t(random_() % uint32_t(most + 1)); }
  int32_t between(int32_t least, int32_t most) { return least + upto(most - least); }
  bool coin() { return random_() & 1; }

 private:
  std::mt19937 random_;
};

// A window that fits: at least one output, some padding, dilation and stride.
Window random_window(Dice* d, const Shape& in) {
  Window w;
  w.kernel_h = d->between(1, 5);
  w.kernel_w = d->between(1, 5);
  w.dilation_h = d->between(1, 3);
  w.dilation_w = d->between(1, 3);
  w.stride_h = d->between(1, 3);
  w.stride_w = d->between(1, 3);
  w.pad_top = d->upto(3);
  w.pad_left = d->upto(3);
  const int32_t reach_h = w.dilation_h * (w.kernel_h - 1) + 1, reach_w = w.dilation_w * (w.kernel_w - 1) + 1;
  w.pad_bottom = std::max(d->upto(3), reach_h - in.height - w.pad_top);
  w.pad_right = std::max(d->upto(3), reach_w - in.width - w.pad_left);
  return w;
}

void random_epilogue(Dice* d, NodeCase* c, bool may_threshold) {
  c->threshold = may_threshold && d->upto(2) == 0;
  c->scale = d->upto(3) != 0;
  c->emit_bits = d->coin();
  c->emit_float = !c->emit_bits || d->coin();
  c->activation = NodeCase::Activation(d->upto(2));
  c->shared_slope = d->coin();
  c->residual = c->threshold ? 0 : d->upto(2);
  if (c->threshold || d->coin()) return;
  for (int32_t left = d->between(1, 4); left > 0; left--) {
    StepCase step{StepKind(d->upto(int32_t(StepKind::kGeluTanh)))};
    if (step.kind == StepKind::kAdd && d->coin()) step.operand = StepCase::kBits;
    if (step.kind == StepKind::kMultiply && d->coin()) step.operand = StepCase::kVector;
    c->steps.push_back(step);
  }
}

}  // namespace

TEST(small_channel_counts) {
  for (int32_t n = 1; n <= 10; n++) {
    compare(binary(5, n, 11 - n, 3, 1));
    NodeCase c = binary(6, n, 70 + n, 2, 0);
    c.residual = 0;
    c.threshold = true;
    compare(c);
  }
}

TEST(channel_counts_around_words_and_vectors) {
  for (const int32_t n : {31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513}) {
    compare(binary(4, n, 64, 3, 1));
    NodeCase c = binary(4, 64, n, 3, 1);
    c.threshold = true;
    c.residual = 0;
    compare(c);
    c.threshold = false;
    c.residual = 2;
    compare(c);
  }
}

TEST(deep) {
  // Byte counters overflow after 31 words, 16-bit ones after 1,024: 5,000 words per output.
  compare(binary(5, 12800, 17, 5, 0));
  compare(binary(6, 12800, 17, 5, 0));
}

TEST(shallow_and_narrow) {
  compare(binary(40, 1, 1, 1, 0));
  NodeCase c = binary(1, 64, 128, 1, 0);
  compare(c);
  c = binary(9, 192, 48, 1, 0);
  c.in.height = 1;
  compare(c);
  c.in = {23, 1, 320};
  compare(c);
}

TEST(pixel_counts_that_leave_remainders) {
  for (int32_t width = 1; width <= 17; width++) {
    NodeCase c = binary(1, 128, 32, 1, 0);
    c.in.width = width;
    compare(c);
    c.in.channels = 64;
    compare(c);
    c.op = Op::kConv2d;
    c.input_kind = Kind::kFloat;
    c.in.channels = 5;
    c.outputs = 16 + width * 7;
    compare(c);
  }
}

TEST(dense_layers_for_one_and_many_images) {
  for (const size_t images : {1, 2, 3, 7, 16, 17, 33}) {
    NodeCase c = binary(3, 512, 100, 3, 0);
    c.images = images;
    compare(c);
    c = binary(1, 1024, 10, 1, 0);
    c.images = images;
    compare(c);
    c.op = Op::kConv2d;
    c.input_kind = Kind::kFloat;
    c.in.channels = 200;
    c.outputs = 1000;
    compare(c);
  }
}

// Inputs that are zero are left out: lists of all lengths around the rows that are read together, none among them.
TEST(dense_layers_behind_a_relu) {
  for (int32_t n = 1; n <= 40; n++) {
    NodeCase c;
    c.op = Op::kConv2d;
    c.input_kind = Kind::kFloat;
    c.sparse = true;
    c.seed = uint32_t(n);
    c.in = {1, 1, n};
    c.outputs = 13 * n;
    compare(c);
    c.in = {3, 2, n};
    c.window.kernel_h = 3;
    c.window.kernel_w = 2 + n % 2;
    c.window.pad_left = n % 2;
    c.outputs = n;
    c.f16 = n % 2;
    compare(c);
  }
}

TEST(layers_of_the_networks) {
  for (const int32_t n : {64, 128, 256, 512}) {
    compare(binary(3584 / n / 8, n, n, 3, 1));
    NodeCase c = binary(3584 / n / 8, n, 2 * n < 512 ? 2 * n : 512, 3, 1);
    c.window.stride_h = c.window.stride_w = 2;
    compare(c);
  }
  NodeCase c = binary(9, 96, 256, 5, 2);
  c.residual = 0;
  c.threshold = true;
  compare(c);
}

TEST(random_binary_convolutions) {
  Dice d(20240601);
  for (uint32_t i = 0; i < 150; i++) {
    NodeCase c;
    c.seed = i;
    c.window.groups = d.upto(3) ? 1 : d.between(2, 4);
    c.in = {d.between(1, 12), d.between(1, 12), c.window.groups * d.between(1, d.coin() ? 70 : 300)};
    c.outputs = c.window.groups * (d.coin() ? 16 * d.between(1, 4) : d.between(1, 90));
    const int32_t groups = c.window.groups;
    c.window = random_window(&d, c.in);
    c.window.groups = groups;
    c.pad_value = d.between(-1, 1);
    c.images = size_t(d.between(1, 3));
    random_epilogue(&d, &c, true);
    compare(c);
  }
}

TEST(random_image_convolutions) {
  Dice d(20240602);
  for (uint32_t i = 0; i < 60; i++) {
    NodeCase c;
    c.seed = i;
    c.op = Op::kImageConv2d;
    c.input_kind = Kind::kUint8;
    c.in = {d.between(1, 16), d.between(1, 16), d.between(1, d.coin() ? 4 : 20)};
    c.outputs = d.between(1, 140);
    c.window = random_window(&d, c.in);
    c.images = size_t(d.between(1, 3));
    random_epilogue(&d, &c, true);
    compare(c);
  }
}

TEST(random_float_convolutions) {
  Dice d(20240603);
  for (uint32_t i = 0; i < 60; i++) {
    NodeCase c;
    c.seed = i;
    c.op = Op::kConv2d;
    c.input_kind = Kind::kFloat;
    c.f16 = d.coin();
    const int32_t groups = d.upto(3) ? 1 : 2;
    c.in = {d.between(1, 12), d.between(1, 12), groups * d.between(1, 40)};
    c.outputs = groups * (d.coin() ? 16 * d.between(1, 5) : d.between(1, 90));
    c.window = random_window(&d, c.in);
    c.window.groups = groups;
    c.images = size_t(d.between(1, 3));
    random_epilogue(&d, &c, false);
    compare(c);
  }
}

// Depthwise with and without a multiplier, groups of few channels, groups that fill no block.
TEST(float_convolutions_in_groups) {
  Dice d(20240606);
  for (uint32_t i = 0; i < 60; i++) {
    NodeCase c;
    c.seed = i;
    c.op = Op::kConv2d;
    c.input_kind = Kind::kFloat;
    c.f16 = d.coin();
    const int32_t groups = i % 4 == 0 ? 16 * d.between(1, 5) : d.between(2, 40);
    const int32_t depth = i % 2 ? d.between(1, 12) : 1, outputs = i % 4 == 0 ? 1 : d.between(1, i % 3 ? 8 : 40);
    c.in = {d.between(1, 12), d.between(1, 20), groups * depth};
    c.outputs = groups * outputs;
    c.window = random_window(&d, c.in);
    c.window.groups = groups;
    c.images = size_t(d.between(1, 3));
    random_epilogue(&d, &c, false);
    compare(c);
  }
}

// What the exporter brings runs by a kernel of the set, whatever the set, and what does not says so.
TEST(no_operator_of_the_exporter_runs_by_the_reference) {
  std::vector<NodeCase> cases;
  const auto add = [&](Op op, Kind input, int32_t channels, int32_t outputs, int32_t groups) {
    NodeCase c;
    c.op = op;
    c.input_kind = input;
    c.in = {8, 8, channels};
    c.outputs = outputs;
    c.window.groups = groups;
    if (op == Op::kAdaptiveAvgPool2d) c.size_h = c.size_w = 3;
    if (op == Op::kConcat) c.others = {outputs - channels};
    cases.push_back(c);
  };
  for (const int32_t n : {24, 32}) {
    for (const Op op : {Op::kElementwise, Op::kMaxPool2d, Op::kAvgPool2d, Op::kLayerNorm, Op::kSoftmax,
                        Op::kGatherChannels, Op::kAdaptiveAvgPool2d}) {
      add(op, Kind::kFloat, n, n, 1);
    }
    add(Op::kGroupNorm, Kind::kFloat, n, n, 8);
    add(Op::kConcat, Kind::kFloat, n, 2 * n, 1);
    add(Op::kConv2d, Kind::kFloat, n, n, 1);
    add(Op::kConv2d, Kind::kFloat, n, n, n);
    add(Op::kConv2d, Kind::kFloat, n, 2 * n, n);
    add(Op::kConv2d, Kind::kFloat, n, n, 4);
    add(Op::kConv2d, Kind::kFloat, n, 2 * n, 4);
    add(Op::kBinaryConv2d, Kind::kBits, n, n, 1);
    add(Op::kBinaryConv2d, Kind::kBits, n, n, 4);
    add(Op::kMaxPool2d, Kind::kBits, n, n, 1);
  }
  cases.push_back(cases[2]);
  cases.back().window.kernel_h = cases.back().window.kernel_w = 3;
  cases.back().window.pad_bottom = cases.back().window.pad_right = 2;  // an overhang of 1
  for (const NodeCase& c : cases) {
    const RandomNode node(c);
    for (const KernelSet* set : available_kernels()) {
      const std::string kernel = Runner(node, set->name, 1).kernel(), expected = set->rows ? set->name : "reference";
      if (kernel.substr(0, kernel.find(' ')) != expected) fail(__FILE__, __LINE__, kernel + " runs: " + c.text());
    }
  }
}

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

// Comes last. Losing an instruction set in silence is the worst regression, so what was covered is printed, and what
// this CPU has and the build lacks fails.
TEST(zz_every_instruction_set_of_this_machine_was_covered) {
  std::set<std::string> sets;
  for (const auto& [name, operators] : covered()) {
    sets.insert(name);
    std::cout << "covered " << name << ":";
    for (const std::string& op : operators) std::cout << " [" << op << "]";
    std::cout << "\n";
  }
  const auto expect = [&](uint32_t features, const char* name) {
    if ((cpu_features() & features) == features) {
      CHECK(sets.count(name) == 1);
    } else {
      std::cout << "skipped " << name << ": this CPU lacks it\n";
    }
  };
#if defined(__x86_64__)
  expect(kAvx512 | kAvx512Vnni | kAvx512Vpopcntdq, "avx512vpopcntdq");
  expect(kAvx512, "avx512");
  expect(kAvx2, "avx2");
#elif defined(__aarch64__)
  expect(kNeonDot, "neondot");
  expect(kNeon, "neon");
#endif
  expect(0, "reference");
}
