// Whole networks on every set of kernels: the same answer to the bit from every set with vectors, for every number of
// threads, every batch, fused or with all values kept; and the scalar set agrees.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>

#include "check.h"
#include "kernels/kernels.h"
#include "kernels/scalar.h"
#include "kernels/table.h"
#include "plan/program.h"
#include "run/context.h"
#include "testing/random_network.h"

using namespace bitedge;

namespace {

NetworkSize small(const std::string& name) {
  NetworkSize size;
  size.image = name == "binarynet" ? 32 : name == "xnornet" ? 99 : 64;
  size.width = name == "xnornet" ? 48 : 16;
  size.classes = 10;
  return size;
}

std::vector<float> answer(const Graph& graph, const char* kernels, const std::vector<unsigned char>& input,
                          size_t images, int threads, bool keep_values = false) {
  const std::unique_ptr<const Program> program = Program::make(graph, kernels);
  Context context(*program, threads, keep_values);
  std::vector<float> output(images * graph.values[size_t(graph.output)].shape.elements());
  for (int run = 0; run < 2; run++) context.run(input.data(), images, output.data());  // the arena has been used before
  return output;
}

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// One for each pair of tile and points: 4 and 7, 5 and 7, 4 and 6.
struct Stem {
  const char* name;
  int32_t image, width;

  std::unique_ptr<RandomNetwork> network() const {
    NetworkSize size = small(name);
    size.image = image;
    size.width = width;
    return RandomNetwork::make(name, size);
  }
};
constexpr Stem kStems[] = {{"birealnet18", 64, 16}, {"xnornet", 99, 48}, {"xnornet", 63, 48}};
// More tiles in a row than a strip has, and a block of channels that is not full.
constexpr Stem kWideStem = {"birealnet18", 364, 20};

}  // namespace

TEST(every_set_gives_the_same_answer) {
  for (const std::string& name : RandomNetwork::names()) {
    const auto network = RandomNetwork::make(name, small(name));
    const std::vector<unsigned char> input = network->random_input(2);
    std::vector<float> first;
    for (const KernelSet* set : available_kernels()) {
      if (!set->binary && name != "binarynet") continue;  // other float sums; see the next tests
      const std::vector<float> got = answer(network->graph(), set->name, input, 2, 1);
      if (first.empty()) first = got;
      if (!same(first, got)) testing::fail(__FILE__, __LINE__, name + " on " + set->name + " differs");
    }
  }
}

TEST(scalar_gives_the_same_answer_but_for_float_rounding) {
  for (const std::string& name : RandomNetwork::names()) {
    const auto network = RandomNetwork::make(name, small(name));
    const std::vector<unsigned char> input = network->random_input(1);
    const std::vector<float> best = answer(network->graph(), nullptr, input, 1, 1);
    const std::vector<float> scalar = answer(network->graph(), "scalar", input, 1, 1);
    float most = 1;
    for (const float y : scalar) most = std::max(most, std::fabs(y));
    for (size_t i = 0; i < scalar.size(); i++) CHECK(std::fabs(best[i] - scalar[i]) <= 1e-3f * most);
  }
}

TEST(threads_do_not_matter) {
  for (const std::string& name : RandomNetwork::names()) {
    const auto network = RandomNetwork::make(name, small(name));
    const std::vector<unsigned char> input = network->random_input(3);
    for (const KernelSet* set : available_kernels()) {
      if (!set->binary) continue;
      const std::vector<float> one = answer(network->graph(), set->name, input, 3, 1);
      for (const int threads : {2, 3, 5}) CHECK(same(one, answer(network->graph(), set->name, input, 3, threads)));
    }
  }
}

TEST(batches_do_not_matter) {
  for (const std::string& name : RandomNetwork::names()) {
    const auto network = RandomNetwork::make(name, small(name));
    const size_t images = 35, bytes = network->graph().values[0].shape.elements();
    const std::vector<unsigned char> input = network->random_input(images);
    const std::vector<float> together = answer(network->graph(), nullptr, input, images, 1);
    const std::unique_ptr<const Program> program = Program::make(network->graph());
    Context context(*program, 1);
    std::vector<float> apart(together.size());
    const size_t classes = together.size() / images;
    size_t at = 0;
    for (const size_t n : {1, 2, 3, 5, 24}) {  // sizes change under one context
      context.run(input.data() + at * bytes, n, apart.data() + at * classes);
      at += n;
    }
    CHECK(same(together, apart));
  }
}

TEST(kept_values_do_not_change_the_answer) {
  for (const std::string& name : RandomNetwork::names()) {
    const auto network = RandomNetwork::make(name, small(name));
    const std::vector<unsigned char> input = network->random_input(2);
    const std::vector<float> fused = answer(network->graph(), nullptr, input, 2, 1);
    CHECK(same(fused, answer(network->graph(), nullptr, input, 2, 1, true)));
    CHECK(same(fused, answer(network->graph(), nullptr, input, 2, 2, true)));
  }
}

// BiRealNet18 with RPReLU behind every sum and RSign in front of every binary convolution, as ReActNet has them: the
// shift and the sign are nodes of their own, which run in one pass with the convolution before them.
class ReactNetwork {
 public:
  ReactNetwork() : network_(RandomNetwork::make("birealnet18", small("birealnet18"))), graph_(network_->graph()) {
    std::vector<Node> nodes;
    for (Node node : network_->graph().nodes) {
      const bool block = node.epilogue.emit_float && node.epilogue.emit_bits;
      const int32_t real = node.outputs[0], channels = graph_.values[size_t(real)].shape.channels;
      if (!block) {
        nodes.push_back(node);
        continue;
      }
      Node sign;
      sign.inputs = {real};
      sign.outputs = {node.outputs[1]};
      sign.epilogue.steps = {fma(channels)};
      sign.epilogue.emit_bits = true;
      node.outputs.resize(1);
      node.epilogue.emit_bits = false;
      EpilogueStep prelu;
      prelu.kind = StepKind::kPrelu;
      prelu.slope = numbers(channels, 0.25f, 0.1f);
      node.epilogue.steps.insert(node.epilogue.steps.end(), {fma(channels), prelu, fma(channels)});
      nodes.push_back(node);
      nodes.push_back(sign);
    }
    graph_.nodes = nodes;
  }

  const Graph& graph() const { return graph_; }
  std::vector<unsigned char> random_input(size_t images) { return network_->random_input(images); }

 private:
  View<float> numbers(int32_t count, float middle, float spread) {
    floats_.emplace_back(size_t(count));
    for (float& x : floats_.back())
      x = middle + spread * float(int(floats_.size() * 7 + size_t(&x - floats_.back().data()) * 5) % 11 - 5) / 5;
    return {floats_.back().data(), size_t(count)};
  }
  EpilogueStep fma(int32_t channels) {
    EpilogueStep step;
    step.kind = StepKind::kFma;
    step.scale = numbers(channels, 1, 0);
    step.bias = numbers(channels, 0, 0.3f);
    return step;
  }

  std::unique_ptr<RandomNetwork> network_;
  Graph graph_;
  std::deque<std::vector<float>> floats_;
};

TEST(shifted_signs_run_with_the_convolution_before_them) {
  ReactNetwork network;
  const Graph& graph = network.graph();
  const std::vector<unsigned char> input = network.random_input(2);
  std::vector<float> first;
  for (const KernelSet* set : available_kernels()) {
    if (!set->binary) continue;
    const std::unique_ptr<const Program> program = Program::make(graph, set->name);
    Context context(*program, 1, true);
    std::vector<float> kept(2 * graph.values[size_t(graph.output)].shape.elements());
    context.run(input.data(), 2, kept.data());
    size_t signs = 0;
    for (size_t n = 3; n < graph.nodes.size(); n++) {
      const Node& node = graph.nodes[n];
      if (node.op != Op::kElementwise || node.epilogue.steps.empty()) continue;
      signs++;
      CHECK(std::string(program->node_kernel(n)).find("fused into") == 0);
      const Shape& shape = graph.values[size_t(node.inputs[0])].shape;
      const float* real = static_cast<const float*>(context.value(size_t(node.inputs[0])));
      const uint64_t* bits = static_cast<const uint64_t*>(context.value(size_t(node.outputs[0])));
      const EpilogueStep& step = node.epilogue.steps[0];
      for (size_t i = 0; i < 2 * shape.elements(); i++) {
        const size_t c = i % size_t(shape.channels), pixel = i / size_t(shape.channels);
        const bool expected = std::fma(real[i], step.scale[c], step.bias[c]) < 0;
        CHECK_EQ((bits[pixel * shape.words() + c / 64] >> (c % 64) & 1) != 0, expected);
      }
    }
    CHECK_EQ(signs, 15u);
    if (first.empty()) first = kept;
    CHECK(same(first, kept));
    for (const int threads : {1, 3}) CHECK(same(first, answer(graph, set->name, input, 2, threads)));
  }
}

// Threads share the pooled stem by bands, and windows reach over their seams.
TEST(a_stem_pools_by_any_window) {
  struct Case {
    int32_t kernel, stride, pad, dilation;
  };
  std::vector<Stem> stems(std::begin(kStems), std::end(kStems));
  stems.push_back(kWideStem);
  for (const Stem& stem : stems) {
    const auto network = stem.network();
    const std::vector<unsigned char> input = network->random_input(2);
    for (const Case& c : {Case{3, 2, 1, 1}, {2, 2, 0, 1}, {3, 1, 1, 1}, {5, 2, 2, 1}, {2, 3, 0, 1}, {3, 2, 0, 2}}) {
      Graph graph = network->graph();
      graph.nodes.resize(3);
      Node& pool = graph.nodes[2];
      graph.output = pool.outputs[0];
      Window& w = pool.window;
      w.kernel_h = w.kernel_w = c.kernel;
      w.stride_h = w.stride_w = c.stride;
      w.pad_top = w.pad_left = w.pad_bottom = w.pad_right = c.pad;
      w.dilation_h = w.dilation_w = c.dilation;
      const Shape& in = graph.values[size_t(pool.inputs[0])].shape;
      const auto size = [&](int32_t n) { return (n + 2 * c.pad - (c.kernel - 1) * c.dilation - 1) / c.stride + 1; };
      graph.values[size_t(graph.output)].shape = {size(in.height), size(in.width), in.channels};
      const std::vector<float> apart = answer(graph, nullptr, input, 2, 1, true);
      for (const int threads : {1, 2, 3}) CHECK(same(apart, answer(graph, nullptr, input, 2, threads)));
    }
  }
}

// The first convolution of the float networks is Winograd's: against sums in double precision.
TEST(the_stem_is_close_to_the_real_sums) {
  for (const Stem& stem : kStems) {
    const auto network = stem.network();
    const Graph& graph = network->graph();
    const Node &normalize = graph.nodes[0], &conv = graph.nodes[1];
    const std::vector<unsigned char> input = network->random_input(1);
    for (const KernelSet* set : available_kernels()) {
      const std::unique_ptr<const Program> program = Program::make(graph, set->name);
      if (set->stem) CHECK(std::string(program->node_kernel(1)).find("winograd") != std::string::npos);
      Context context(*program, 1, true);
      std::vector<float> output(graph.values[size_t(graph.output)].shape.elements());
      context.run(input.data(), 1, output.data());
      const float* got = static_cast<const float*>(context.value(size_t(conv.outputs[0])));
      const Shape &in = graph.values[0].shape, &out = graph.values[size_t(conv.outputs[0])].shape;
      const Window& w = conv.window;
      double error = 0, power = 0;
      for (int32_t y = 0; y < out.height; y++) {
        for (int32_t x = 0; x < out.width; x++) {
          for (int32_t o = 0; o < out.channels; o++) {
            double sum = 0;
            for (int32_t ky = 0; ky < w.kernel_h; ky++) {
              for (int32_t kx = 0; kx < w.kernel_w; kx++) {
                const int32_t iy = y * w.stride_h + ky - w.pad_top, ix = x * w.stride_w + kx - w.pad_left;
                if (iy < 0 || iy >= in.height || ix < 0 || ix >= in.width) continue;
                for (int32_t c = 0; c < 3; c++) {
                  const double u = input[size_t((iy * in.width + ix) * 3 + c)];
                  sum += (u * double(normalize.scale[size_t(c)]) + double(normalize.offset[size_t(c)])) *
                         double(conv.weight_f32[size_t(((o * w.kernel_h + ky) * w.kernel_w + kx) * 3 + c)]);
                }
              }
            }
            const std::vector<EpilogueStep>& steps = conv.epilogue.steps;
            double expected = sum * double(steps[0].scale[size_t(o)]) + double(steps[0].bias[size_t(o)]);
            if (steps.size() > 1) expected = std::max(expected, 0.0);  // a ReLU
            const double difference = double(got[(y * out.width + x) * out.channels + o]) - expected;
            error += difference * difference;
            power += expected * expected;
          }
        }
      }
      CHECK(std::sqrt(error / power) < 2.5e-6);
    }
  }
}

TEST(profile_books_every_node_that_runs) {
  const auto network = RandomNetwork::make("birealnet18", small("birealnet18"));
  const std::unique_ptr<const Program> program = Program::make(network->graph());
  Context context(*program, 1);
  std::vector<float> output(10);
  context.set_profiling(true);
  context.run(network->random_input(1).data(), 1, output.data());
  for (const Step& step : program->steps(false)) CHECK(context.node_nanoseconds()[step.node] > 0);
}

TEST(an_unknown_set_of_kernels_is_refused_with_the_ones_there_are) {
  const auto network = RandomNetwork::make("binarynet", small("binarynet"));
  CHECK_ERROR(Status::kUnavailable, "scalar", Program::make(network->graph(), "mmx"));
  CHECK_ERROR(Status::kArgument, "birealnet18", RandomNetwork::make("resnet"));
}
