#include "bench_network.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>

#include "api/golden.h"
#include "api/model.h"
#include "base/error.h"
#include "base/text.h"
#include "graph/infer.h"
#include "graph/operators.h"
#include "host.h"
#include "kernels/kernels.h"
#include "kernels/table.h"
#include "limit.h"
#include "run/context.h"

namespace bitedge {
namespace {

constexpr int kRounds = 20, kWarmUp = 3, kLimitRuns = 20, kSteadyTries = 16;
constexpr double kTolerance = 1e-3, kSteady = 1e-4, kDisturbance = 1e-6;

using Clock = std::chrono::steady_clock;

double milliseconds(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// A network ready to run on one set of kernels: a file's, or one with random weights.
struct Subject {
  std::string engine;
  std::shared_ptr<const Model> model;
  std::unique_ptr<const Program> own;
  double load_ms = 0;

  const Program& program() const { return model ? model->program() : *own; }
  const Graph& graph() const { return program().graph(); }
  size_t outputs() const { return graph().values[size_t(graph().output)].shape.elements(); }
};

std::vector<float> answer(const Program& program, const std::vector<uint8_t>& image) {
  std::vector<float> output(program.graph().values[size_t(program.graph().output)].shape.elements());
  Context(program, 1).run(image.data(), 1, output.data());
  return output;
}

// The largest difference, in parts of the largest output; NaN counts as infinite.
double difference(const std::vector<float>& got, const std::vector<float>& expected) {
  double largest = 1, most = 0;
  for (const float y : expected) largest = std::max(largest, std::fabs(double(y)));
  for (size_t i = 0; i < got.size(); i++) {
    const double d = std::fabs(double(got[i]) - double(expected[i])) / largest;
    most = std::isnan(d) ? INFINITY : std::max(most, d);
  }
  return most;
}

// An image whose answer does not hang on the last rounding of a float layer: a sign of nearly 0 that turns when float
// weights change by a millionth would accuse an innocent kernel. That is a property of network and image, so any
// kernels may find it out.
std::vector<uint8_t> steady_image(const NetworkBench& options, RandomNetwork* network) {
  NetworkSize size = options.size;
  size.disturbance = kDisturbance;
  const auto other = RandomNetwork::make(options.net, size);
  const auto program = Program::make(network->graph()), disturbed = Program::make(other->graph());
  std::vector<uint8_t> best;
  double least = INFINITY;
  for (int i = 0; i < kSteadyTries && least > kSteady; i++) {
    const std::vector<uint8_t> image = network->random_input(1);
    const double moved = difference(answer(*disturbed, image), answer(*program, image));
    if (best.empty() || moved < least) {
      best = image;
      least = moved;
    }
  }
  return best;
}

// The golden vectors of a file; or for random weights the scalar kernels, the readable reference.
void check(const NetworkBench& options, const std::vector<Subject>& subjects, const std::vector<uint8_t>& image) {
  std::vector<float> expected;
  for (const Subject& subject : subjects) {
    if (subject.model) {
      subject.model->check();
      continue;
    }
    if (expected.empty()) expected = answer(*Program::make(subject.graph(), "scalar"), image);
    const double off = difference(answer(subject.program(), image), expected);
    if (off <= kTolerance) continue;
    throw Error(Status::kGolden, join(options.net, ": the kernels ", quoted(subject.program().kernels().name),
                                      " give another answer than the scalar ones, off by ", off,
                                      " of the largest output: do not trust them on this machine"));
  }
}

uint64_t weight_bytes(const Graph& graph) {
  uint64_t bytes = 0;
  for (const Node& node : graph.nodes) {
    bytes += 8 * node.bits.size + 2 * node.weight_f16.size + 4 * (node.weight_f32.size + node.scale.size);
    bytes += 4 * (node.offset.size + node.index.size + node.epilogue.threshold.size);
    for (const EpilogueStep& step : node.epilogue.steps) {
      bytes += 4 * (step.scale.size + step.bias.size + step.slope.size);
    }
  }
  return bytes;
}

uint64_t peak_rss() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
#if defined(__APPLE__)
  return uint64_t(usage.ru_maxrss);
#else
  return uint64_t(usage.ru_maxrss) * 1024;
#endif
}

// The mean time of each node over the half of the runs whose totals lie in the middle: means add up where medians do
// not, and the slow runs of a busy machine stay out.
std::vector<double> typical(std::vector<std::vector<uint64_t>> runs) {
  const auto total = [](const std::vector<uint64_t>& run) {
    return std::accumulate(run.begin(), run.end(), uint64_t(0));
  };
  std::stable_sort(runs.begin(), runs.end(), [&](const auto& a, const auto& b) { return total(a) < total(b); });
  const size_t quarter = runs.size() / 4, kept = runs.size() - 2 * quarter;
  std::vector<double> means(runs.front().size());
  for (size_t i = quarter; i < quarter + kept; i++) {
    for (size_t n = 0; n < means.size(); n++) means[n] += double(runs[i][n]) / double(kept);
  }
  return means;
}

// One thread count and batch size of a subject: its context, made and used on its own cores.
class Lane {
 public:
  Lane(const Subject& subject, int threads, int batch, const std::vector<uint8_t>& image)
      : subject_(subject), batch_(size_t(batch)), input_(image.size() * batch_), output_(subject.outputs() * batch_) {
    for (size_t i = 0; i < batch_; i++) std::memcpy(input_.data() + i * image.size(), image.data(), image.size());
    row.engine = subject.engine;
    row.net = subject.graph().name;
    row.threads = threads;
    row.batch = batch;
    row.load_ms = subject.load_ms;
    row.bytes = subject.model ? subject.model->metadata().file_bytes : weight_bytes(subject.graph());
    pin_to_cores(threads);
    context_ = std::make_unique<Context>(subject.program(), threads);
    const Clock::time_point start = Clock::now();
    run();
    row.cold_ms = milliseconds(start);
    for (int i = 1; i < kWarmUp; i++) run();
  }

  void measure(int runs) {
    pin_to_cores(row.threads);
    run();  // the caches were another lane's
    for (int i = 0; i < runs; i++) {
      const Clock::time_point start = Clock::now();
      run();
      durations_.push_back(milliseconds(start));
      if (profiling) {
        context_->set_profiling(true);
        run();
        context_->set_profiling(false);
        nodes_.push_back(context_->node_nanoseconds());
      }
    }
  }

  void finish() {
    std::sort(durations_.begin(), durations_.end());
    row.min = durations_.front();
    row.p50 = percentile(0.5);
    row.p90 = percentile(0.9);
    row.p99 = percentile(0.99);
    row.peak_rss = peak_rss();
  }

  // The layers and the rest of a call, which together are the p50 of an image; the bare loop for binary layers.
  void profile() {
    const Graph& graph = subject_.graph();
    const std::vector<double> spent = typical(nodes_);
    double rest = row.p50 / double(batch_);
    for (size_t i = 0; i < graph.nodes.size(); i++) {
      const Node& node = graph.nodes[i];
      LayerTime layer;
      layer.name = graph.values[size_t(node.outputs[0])].name;
      layer.op = op_name(node.op);
      layer.kernel = subject_.program().node_kernel(i);
      layer.macs = node_macs(graph, node);
      layer.ms = spent[i] / double(batch_) / 1e6;
      if (layer.macs && layer.ms > 0) layer.rate = double(layer.macs) / layer.ms / 1e6;
      if (layer.rate > 0) layer.limit = limit_of(graph, node) * row.threads;
      rest -= layer.ms;
      row.layers.push_back(layer);
    }
    row.layers.push_back({"rest", "-", "calling, planning and answering", 0, rest, 0, 0});
  }

  bool profiling = false;
  NetworkRow row;

 private:
  void run() { context_->run(input_.data(), batch_, output_.data()); }

  // As numpy does it: linear between the two nearest.
  double percentile(double part) const {
    const double at = part * double(durations_.size() - 1);
    const size_t below = size_t(at), above = std::min(below + 1, durations_.size() - 1);
    return durations_[below] + (at - double(below)) * (durations_[above] - durations_[below]);
  }

  // GMAC/s of the bare loop on one thread, in the shape of a binary layer; 0 for other layers.
  static double limit_of(const Graph& graph, const Node& node) {
    if (node.op != Op::kBinaryConv2d || node.window.groups != 1 || !has_bare_loop()) return 0;
    const Shape &in = graph.values[size_t(node.inputs[0])].shape, &out = graph.values[size_t(node.outputs[0])].shape;
    Limit limit(int(out.pixels()), out.channels, node.window.kernel_h * node.window.kernel_w * int(in.words()));
    double best = INFINITY;
    for (int i = 0; i < kLimitRuns; i++) {
      const Clock::time_point start = Clock::now();
      limit.run();
      best = std::min(best, milliseconds(start));
    }
    return limit.macs() / best / 1e6;
  }

  const Subject& subject_;
  const size_t batch_;
  std::vector<uint8_t> input_;
  std::vector<float> output_;
  std::unique_ptr<Context> context_;
  std::vector<double> durations_;
  std::vector<std::vector<uint64_t>> nodes_;  // nanoseconds, in runs that take turns with those of `durations_`
};

Subject open(const NetworkBench& options, const RandomNetwork* network, const std::string& kernels) {
  Subject subject;
  const char* name = kernels.empty() ? nullptr : kernels.c_str();
  subject.engine = kernels.empty() ? "bitedge" : "bitedge " + kernels;
  const Clock::time_point start = Clock::now();
  if (network) {
    subject.own = Program::make(network->graph(), name);
  } else {
    subject.model = Model::load_file(options.file, name);
  }
  subject.load_ms = milliseconds(start);
  return subject;
}

}  // namespace

std::vector<NetworkRow> bench_network(const NetworkBench& options) {
  std::unique_ptr<RandomNetwork> network;
  if (!options.net.empty()) network = RandomNetwork::make(options.net, options.size);
  std::vector<std::string> kernels = options.kernels;
  if (kernels.empty()) kernels = {""};
  if (kernels.front() == "all") {
    kernels = {""};
    for (const KernelSet* set : available_kernels()) kernels.emplace_back(set->name);
  }
  std::vector<Subject> subjects;
  for (const std::string& name : kernels) subjects.push_back(open(options, network.get(), name));
  const std::vector<uint8_t> image =
      network ? steady_image(options, network.get())
              : golden_input(subjects.front().graph().values[0], subjects.front().model->metadata().golden.seed);
  check(options, subjects, image);

  std::vector<std::unique_ptr<Lane>> lanes;
  for (const int threads : options.threads) {
    for (const int batch : options.batches) {
      for (const Subject& subject : subjects) lanes.push_back(std::make_unique<Lane>(subject, threads, batch, image));
    }
  }
  lanes.front()->profiling = options.profile;
  // All rows take turns, so that a slow moment of the machine falls on all of them alike.
  const int rounds = std::min(kRounds, options.runs);
  for (int round = 0; round < rounds; round++) {
    const int runs = options.runs / rounds + (round < options.runs % rounds ? 1 : 0);
    for (const auto& lane : lanes) lane->measure(runs);
  }
  std::vector<NetworkRow> rows;
  for (const auto& lane : lanes) {
    lane->finish();
    if (options.profile && lane == lanes.front()) lane->profile();
    rows.push_back(lane->row);
  }
  return rows;
}

}  // namespace bitedge
