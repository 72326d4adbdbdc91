// Convolutions by every set of kernels, against the scalar reference, bit for bit: integers, and floats too, since
// their order of summation is fixed. Sizes are grouped by the reason for which they could fail.
#include "kernels/kernels.h"

#include "base/cpu.h"
#include "compare_kernels.h"

using namespace bitedge;
using namespace bitedge::testing;

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

namespace {

// `choose` sets the shape of the input, the outputs and the groups.
template <typename Choose>
void random_float_convolutions(uint32_t seed, const Choose& choose) {
  Dice d(seed);
  for (uint32_t i = 0; i < 60; i++) {
    NodeCase c;
    c.seed = i;
    c.op = Op::kConv2d;
    c.input_kind = Kind::kFloat;
    c.f16 = d.coin();
    const int32_t groups = choose(&d, i, &c);
    c.window = random_window(&d, c.in);
    c.window.groups = groups;
    c.images = size_t(d.between(1, 3));
    random_epilogue(&d, &c, false);
    compare(c);
  }
}

}  // namespace

TEST(float_convolutions) {
  random_float_convolutions(20240603, [](Dice* d, uint32_t, NodeCase* c) {
    const int32_t groups = d->upto(3) ? 1 : 2;
    c->in = {d->between(1, 12), d->between(1, 12), groups * d->between(1, 40)};
    c->outputs = groups * (d->coin() ? 16 * d->between(1, 5) : d->between(1, 90));
    return groups;
  });
}

// Depthwise with and without a multiplier, groups of few channels, groups that fill no block.
TEST(float_convolutions_in_groups) {
  random_float_convolutions(20240606, [](Dice* d, uint32_t i, NodeCase* c) {
    const int32_t groups = i % 4 == 0 ? 16 * d->between(1, 5) : d->between(2, 40);
    const int32_t depth = i % 2 ? d->between(1, 12) : 1, outputs = i % 4 == 0 ? 1 : d->between(1, i % 3 ? 8 : 40);
    c->in = {d->between(1, 12), d->between(1, 20), groups * depth};
    c->outputs = groups * outputs;
    return groups;
  });
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
  expect(kSse42, "portable");
#elif defined(__aarch64__)
  expect(kNeonDot, "neondot");
  expect(kNeon, "neon");
  expect(0, "portable");
#elif defined(__arm__)
  expect(kNeon, "portable");
#else
  expect(0, "portable");
#endif
  expect(0, "reference");
}
