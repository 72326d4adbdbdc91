#include "bench_kernels.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <random>

#include "base/json.h"
#include "float_layers.h"
#include "host.h"
#include "kernels/kernels.h"
#include "kernels/table.h"
#include "limit.h"
#include "testing/random_node.h"

namespace bitedge {
namespace {

using testing::NodeCase;
using testing::RandomNode;

struct LayerShape {
  const char* name;
  int32_t side, in, out, kernel, stride, pad;
  bool residual;  // scale, bias, residual, floats and bits out; else a threshold, bits out
};

constexpr LayerShape kLayers[] = {
    {"birealnet18 56x56", 56, 64, 64, 3, 1, 1, true},      {"birealnet18 28x28", 28, 128, 128, 3, 1, 1, true},
    {"birealnet18 14x14", 14, 256, 256, 3, 1, 1, true},    {"birealnet18 7x7", 7, 512, 512, 3, 1, 1, true},
    {"birealnet18 56x56 /2", 56, 64, 128, 3, 2, 1, true},  {"birealnet18 28x28 /2", 28, 128, 256, 3, 2, 1, true},
    {"birealnet18 14x14 /2", 14, 256, 512, 3, 2, 1, true}, {"binarynet conv2", 30, 128, 128, 3, 1, 1, false},
    {"binarynet conv4", 15, 256, 256, 3, 1, 1, false},     {"binarynet conv6", 7, 512, 512, 3, 1, 1, false},
    {"binarynet dense7", 3, 512, 1024, 3, 1, 0, false},    {"xnornet conv2", 27, 96, 256, 5, 1, 2, false},
    {"xnornet conv3", 13, 256, 384, 3, 1, 1, false},       {"xnornet conv4", 13, 384, 384, 3, 1, 1, false},
    {"xnornet conv6", 6, 256, 4096, 6, 1, 0, false},
};

NodeCase node_case(const LayerShape& l) {
  NodeCase c;
  c.in = {l.side, l.side, l.in};
  c.outputs = l.out;
  c.window.kernel_h = c.window.kernel_w = l.kernel;
  c.window.stride_h = c.window.stride_w = l.stride;
  c.window.pad_top = c.window.pad_left = c.window.pad_bottom = c.window.pad_right = l.pad;
  c.threshold = !l.residual;
  c.emit_bits = true;
  c.residual = l.residual ? 1 : 0;
  return c;
}

double seconds_of(const std::chrono::steady_clock::time_point& start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double macs_of(const NodeCase& c) {
  return double(c.out_height()) * c.out_width() * c.outputs * c.window.kernel_h * c.window.kernel_w * c.in.channels;
}

struct Row {
  std::string layer, set, kernel;
  double microseconds, rate, limit;  // GMAC/s; limit 0: not measured
};

// All sets and the bare loop take turns, so that a change of the clock meets them alike; the best of all rounds counts.
void measure(const LayerShape& shape, const std::vector<const KernelSet*>& sets, int rounds, std::vector<Row>* rows) {
  const NodeCase c = node_case(shape);
  std::vector<std::unique_ptr<testing::Runner>> runners;
  RandomNode node(c);
  for (const KernelSet* set : sets) runners.push_back(std::make_unique<testing::Runner>(node, set->name, 1));
  const int words = (c.in.channels + 63) / 64;
  Limit limit(c.out_height() * c.out_width(), c.outputs, c.window.kernel_h * c.window.kernel_w * words);
  std::vector<double> best(sets.size(), 1e9);
  double best_limit = 1e9;
  for (int round = 0; round < rounds; round++) {
    for (size_t i = 0; i < sets.size(); i++) {
      const auto start = std::chrono::steady_clock::now();
      runners[i]->run();
      best[i] = std::min(best[i], seconds_of(start));
    }
    if (has_bare_loop()) {
      const auto start = std::chrono::steady_clock::now();
      limit.run();
      best_limit = std::min(best_limit, seconds_of(start));
    }
  }
  for (size_t i = 0; i < sets.size(); i++) {
    rows->push_back({shape.name, sets[i]->name, runners[i]->kernel(), best[i] * 1e6, macs_of(c) / best[i] / 1e9,
                     has_bare_loop() ? limit.macs() / best_limit / 1e9 : 0});
  }
}

// The same for layers of floats, next to the roofline: its rate is that of the layer if it took no longer.
void measure(const FloatLayerCase& layer, const std::vector<const KernelSet*>& sets, int rounds,
             std::vector<Row>* rows) {
  const RandomNode node(layer.node);
  std::vector<std::unique_ptr<testing::Runner>> runners;
  for (const KernelSet* set : sets) runners.push_back(std::make_unique<testing::Runner>(node, set->name, 1));
  Roofline roofline(layer);
  std::vector<double> best(sets.size(), 1e9);
  for (int round = 0; round < rounds; round++) {
    for (size_t i = 0; i < sets.size(); i++) {
      const auto start = std::chrono::steady_clock::now();
      runners[i]->run();
      best[i] = std::min(best[i], seconds_of(start));
    }
    if (has_bare_loop()) roofline.measure();
  }
  const double work = layer.macs > 0 ? layer.macs : layer.floats;
  for (size_t i = 0; i < sets.size(); i++) {
    rows->push_back({layer.name, sets[i]->name, runners[i]->kernel(), best[i] * 1e6, work / best[i] / 1e9,
                     has_bare_loop() ? work / roofline.seconds() / 1e9 : 0});
  }
}

std::string as_json(const std::vector<Row>& rows) {
  JsonWriter json;
  json.open('{').key("host");
  write_host(&json, describe_host());
  json.key("rows").open('[');
  for (const Row& r : rows) {
    json.open('{').key("layer").string(r.layer).key("engine").string("bitedge " + r.set);
    json.key("kernel").string(r.kernel).key("us");
    write_number(&json, r.microseconds);
    json.key("gmacs_per_s");
    write_number(&json, r.rate);
    json.key("limit_gmacs_per_s");
    write_number(&json, r.limit, r.limit > 0);
    json.key("share");
    write_number(&json, r.limit > 0 ? r.rate / r.limit : 0, r.limit > 0);
    json.close('}');
  }
  json.close(']').close('}');
  return json.text();
}

}  // namespace

std::vector<const KernelSet*> kernel_sets(const KernelBench& options) {
  std::vector<const KernelSet*> sets;
  for (const KernelSet* set : available_kernels()) {
    // The reference takes seconds per round: only when it is asked for.
    if (options.sets.empty() && set->binary) sets.push_back(set);
  }
  for (const std::string& name : options.sets) sets.push_back(&select_kernels(name.c_str()));
  return sets;
}

void bench_kernels(const KernelBench& options) {
  const std::vector<const KernelSet*> sets = kernel_sets(options);
  std::vector<Row> rows;
  for (const LayerShape& shape : kLayers) measure(shape, sets, options.rounds, &rows);
  for (const FloatLayerCase& layer : float_layers()) measure(layer, sets, options.rounds, &rows);
  if (options.json) {
    std::printf("%s\n", as_json(rows).c_str());
    return;
  }
  std::printf("%-22s %-36s %10s %9s %9s %6s\n", "layer", "kernel", "us", "GMAC/s", "limit", "share");
  for (const Row& r : rows) {
    std::printf("%-22s %-36s %10.1f %9.0f", r.layer.c_str(), r.kernel.c_str(), r.microseconds, r.rate);
    r.limit > 0 ? std::printf(" %9.0f %5.0f%%\n", r.limit, 100 * r.rate / r.limit)
                : std::printf(" %9s %6s\n", "-", "-");
  }
}

}  // namespace bitedge
