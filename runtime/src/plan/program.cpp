#include "plan/program.h"

#include <algorithm>

#include "graph/operators.h"
#include "kernels/table.h"
#include "layers/pooled_stem.h"
#include "layers/stem_layer.h"

namespace bitedge {
namespace {

constexpr size_t kNone = size_t(-1);

// The nodes that read a value; the caller who wants the answer counts as one that is not there.
std::vector<size_t> readers(const Graph& graph, int32_t value) {
  std::vector<size_t> nodes;
  for (size_t n = 0; n < graph.nodes.size(); n++) {
    const std::vector<int32_t>& inputs = graph.nodes[n].inputs;
    if (std::count(inputs.begin(), inputs.end(), value)) nodes.push_back(n);
  }
  if (value == graph.output) nodes.push_back(kNone);
  return nodes;
}

// The one node that reads node `n`'s only output, if it is of this kind; else kNone.
size_t only_reader(const Graph& graph, size_t n, Op op) {
  if (graph.nodes[n].outputs.size() != 1) return kNone;
  const std::vector<size_t> nodes = readers(graph, graph.nodes[n].outputs[0]);
  return nodes.size() == 1 && nodes[0] != kNone && graph.nodes[nodes[0]].op == op ? nodes[0] : kNone;
}

// A float of the output's shape that the epilogue adds, and that nothing else in the node reads; else -1.
int32_t residual(const Graph& graph, const Node& node) {
  for (const EpilogueStep& step : node.epilogue.steps) {
    if (step.kind != StepKind::kAdd || !node.epilogue.emit_float) continue;
    const int32_t value = node.inputs[step.input];
    if (graph.values[size_t(value)].kind == Kind::kFloat && value != node.inputs[0]) return value;
  }
  return -1;
}

// An elementwise node without residual that makes bits and reads node `n`'s output; else kNone.
size_t any_sign(const Graph& graph, size_t n) {
  for (const size_t r : readers(graph, graph.nodes[n].outputs[0])) {
    if (r == kNone || graph.nodes[r].op != Op::kElementwise) continue;
    if (graph.nodes[r].inputs.size() == 1 && graph.nodes[r].outputs.size() == 1 &&
        !graph.nodes[r].epilogue.emit_float) {
      return r;
    }
  }
  return kNone;
}

}  // namespace

std::unique_ptr<const Program> Program::make(const Graph& graph, const char* kernels) {
  return std::unique_ptr<const Program>(new Program(graph, select_kernels(kernels)));
}

const Layer& Program::keep(std::unique_ptr<const Layer> layer) {
  layers_.push_back(std::move(layer));
  return *layers_.back();
}

Program::Program(const Graph& graph, const KernelSet& kernels) : graph_(graph), kernels_(kernels) {
  names_.resize(graph.nodes.size());
  for (size_t n = 0; n < graph.nodes.size(); n++) {
    const Node& node = graph.nodes[n];
    Step step;
    step.node = n;
    step.inputs = node.inputs;
    step.outputs = node.outputs;
    step.in_place = residual(graph, node);
    all_.push_back(step);
    node_layers_.push_back(nullptr);
  }
  for (size_t n = 0; n < graph.nodes.size(); n++) {
    if (names_[n].empty()) make_step(n);
  }
  fused_ = all_;
  fuse_stem();
  for (std::vector<Step>* steps : {&all_, &fused_}) {
    steps->erase(std::remove_if(steps->begin(), steps->end(), [](const Step& s) { return !s.layer; }), steps->end());
  }
  fetch_ahead();
}

// A convolution whose floats are binarized by a node of its own makes the bits too, all in one pass: the shift in front
// of a sign (RSign) costs no more than a step. Both values are made, so this holds with `keep_values` as well.
void Program::make_step(size_t n) {
  const Node& node = graph_.nodes[n];
  const Epilogue& epilogue = node.epilogue;
  const bool convolution = node.op == Op::kBinaryConv2d || node.op == Op::kConv2d || node.op == Op::kImageConv2d;
  const bool stem = graph_.nodes[0].op == Op::kNormalize && node.inputs[0] == graph_.nodes[0].outputs[0];
  const size_t sign = convolution && !stem && epilogue.emit_float && !epilogue.emit_bits ? any_sign(graph_, n) : kNone;
  std::unique_ptr<const Layer> layer;
  if (sign != kNone) {
    Node both = node;
    both.epilogue.steps_to_bits = graph_.nodes[sign].epilogue.steps;
    both.epilogue.emit_bits = true;
    both.outputs.push_back(graph_.nodes[sign].outputs[0]);
    layer = operator_of(node.op).make_layer(graph_, both, kernels_);
    if (layer) {
      all_[n].outputs = both.outputs;
      names_[sign] = "fused into " + graph_.values[size_t(node.outputs[0])].name;
      node_layers_[sign] = layer.get();
    }
  }
  all_[n].layer = node_layers_[n] = &keep(layer ? std::move(layer) : make_layer(graph_, node, kernels_));
  names_[n] = all_[n].layer->kernel();
}

// Dense layers of bits wait for memory, convolutions do not: so these fetch for those, from the nearest one back to the
// first, each as much as it has time for. Batches read the weights once for many images and need none of it.
void Program::fetch_ahead() {
  std::vector<size_t> spare;
  for (const Step& step : fused_) spare.push_back(step.layer->spare_bytes());
  for (size_t t = 0; t < fused_.size(); t++) {
    Ahead left = fused_[t].layer->streamed();
    for (size_t s = t; s-- > 0 && left.bytes;) {
      if (fused_[s].ahead.bytes || !spare[s]) continue;
      const size_t bytes = std::min(spare[s], left.bytes);
      left.bytes -= bytes;
      fused_[s].ahead = {left.data + left.bytes, bytes};
    }
  }
}

// normalize, conv2d, and if they follow, max_pool2d and elementwise: straight from the bytes of the image to what
// the first binary layer reads, a band of rows at a time, so that the largest map of the network is never written.
void Program::fuse_stem() {
  const Graph& graph = graph_;
  if (graph.nodes.empty() || graph.nodes[0].op != Op::kNormalize) return;
  const size_t conv = only_reader(graph, 0, Op::kConv2d);
  if (conv == kNone) return;
  std::unique_ptr<const StemLayer> made = make_stem_layer(graph, graph.nodes[0], graph.nodes[conv], kernels_);
  if (!made) return;
  const StemLayer& stem = *made;
  keep(std::move(made));

  all_[conv].layer = node_layers_[conv] = &stem;
  all_[conv].inputs[0] = graph.nodes[0].inputs[0];
  names_[conv] = stem.kernel();
  std::vector<size_t> absorbed = {0};
  Step step = all_[conv];
  size_t at = conv;
  const size_t pool = only_reader(graph, conv, Op::kMaxPool2d);
  if (pool != kNone && stem.plain()) {
    const size_t sign = any_sign(graph, pool);
    step.layer =
        &keep(make_pooled_stem(graph, stem, graph.nodes[pool], sign == kNone ? nullptr : &graph.nodes[sign], kernels_));
    step.outputs = {graph.nodes[pool].outputs[0]};
    if (sign != kNone) step.outputs.push_back(graph.nodes[sign].outputs[0]);
    absorbed.insert(absorbed.end(), {conv, pool});
    if (sign != kNone) absorbed.push_back(sign);
    names_[conv] = step.layer->kernel();
    at = pool;
  }
  fused_[at] = step;
  for (const size_t n : absorbed) {
    if (n != conv) names_[n] = "fused into " + graph.values[size_t(graph.nodes[conv].outputs[0])].name;
    if (n != at) fused_[n].layer = nullptr;
  }
}

}  // namespace bitedge
