// What the tests of kernels share: a node by every set of kernels that this machine has, against the scalar reference,
// bit for bit.
#pragma once

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>

#include "check.h"
#include "kernels/kernels.h"
#include "kernels/table.h"
#include "testing/random_node.h"

namespace bitedge::testing {

// Which operators each set has really run, not fallen back from.
inline std::map<std::string, std::set<std::string>>& covered() {
  static std::map<std::string, std::set<std::string>> sets;
  return sets;
}

inline void compare(const NodeCase& c) {
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

inline NodeCase binary(int32_t side, int32_t in, int32_t out, int32_t kernel, int32_t pad) {
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
inline Window random_window(Dice* d, const Shape& in) {
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

inline void random_epilogue(Dice* d, NodeCase* c, bool may_threshold) {
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

}  // namespace bitedge::testing
