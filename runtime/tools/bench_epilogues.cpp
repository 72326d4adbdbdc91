#include "bench_epilogues.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base/json.h"
#include "host.h"
#include "kernels/kernels.h"
#include "kernels/table.h"
#include "testing/random_node.h"

namespace bitedge {
namespace {

using testing::NodeCase;
using testing::RandomNode;
using testing::Runner;

// Scale, bias, residual, floats and bits out; and with shift, PReLU, shift before the floats, a shift before the bits.
NodeCase block(int32_t side, int32_t channels, bool shifted) {
  NodeCase c;
  c.in = {side, side, channels};
  c.outputs = channels;
  c.window.kernel_h = c.window.kernel_w = 3;
  c.window.pad_top = c.window.pad_left = c.window.pad_bottom = c.window.pad_right = 1;
  c.emit_bits = true;
  c.residual = 1;
  if (!shifted) return c;
  c.steps = {{StepKind::kFma}, {StepKind::kPrelu}, {StepKind::kFma}};
  c.fmas_to_bits = 1;
  c.shifts = true;
  return c;
}

struct Row {
  std::string layer, kernel;
  double plain, shifted;  // microseconds
};

// The two take turns; the best of all rounds counts.
Row measure(int32_t side, int32_t channels, const KernelSet& set, int rounds) {
  const RandomNode plain(block(side, channels, false)), shifted(block(side, channels, true));
  Runner runners[] = {{plain, set.name, 1}, {shifted, set.name, 1}};
  double best[] = {1e9, 1e9};
  for (int round = 0; round < rounds; round++) {
    for (size_t i = 0; i < 2; i++) {
      const auto start = std::chrono::steady_clock::now();
      runners[i].run();
      const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - start;
      best[i] = std::min(best[i], spent.count());
    }
  }
  const std::string at = std::to_string(side);
  return {at + "x" + at + "x" + std::to_string(channels), runners[0].kernel(), best[0], best[1]};
}

std::string as_json(const std::vector<Row>& rows) {
  JsonWriter json;
  json.open('{').key("host");
  write_host(&json, describe_host());
  json.key("rows").open('[');
  for (const Row& r : rows) {
    json.open('{').key("layer").string(r.layer).key("kernel").string(r.kernel).key("us");
    write_number(&json, r.plain);
    json.key("shifted_us");
    write_number(&json, r.shifted);
    json.key("times");
    write_number(&json, r.shifted / r.plain);
    json.close('}');
  }
  json.close(']').close('}');
  return json.text();
}

}  // namespace

void bench_epilogues(const KernelBench& options) {
  std::vector<Row> rows;
  for (const KernelSet* set : kernel_sets(options)) {
    for (const int32_t side : {56, 28, 14, 7}) rows.push_back(measure(side, 3584 / side, *set, options.rounds));
  }
  if (options.json) {
    std::printf("%s\n", as_json(rows).c_str());
    return;
  }
  std::printf("%-12s %-36s %10s %18s %6s\n", "layer", "kernel", "us", "with RSign, RPReLU", "times");
  for (const Row& r : rows) {
    std::printf("%-12s %-36s %10.1f %18.1f %6.3f\n", r.layer.c_str(), r.kernel.c_str(), r.plain, r.shifted,
                r.shifted / r.plain);
  }
}

}  // namespace bitedge
