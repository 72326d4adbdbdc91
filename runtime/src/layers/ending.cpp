#include "layers/ending.h"

#include <cstring>

namespace bitedge {
namespace {

size_t padded(int32_t channels) { return (size_t(channels) + kBlock - 1) / kBlock * kBlock; }

// One value per channel; a view of one element holds for all.
template <typename T>
const T* spread(const View<T>& from, int32_t channels, Aligned<T>* to) {
  if (!from) return nullptr;
  *to = Aligned<T>(padded(channels));
  for (size_t c = 0; c < size_t(channels); c++) (*to)[c] = from[from.size == 1 ? 0 : c];
  return to->data();
}

}  // namespace

bool EndingPlan::covers(const Graph&, const Node& node) {
  int rank = 0;  // fma, add, activation: each at most once, in this order
  for (const EpilogueStep& step : node.epilogue.steps) {
    const int next = step.kind == StepKind::kFma                                     ? 1
                     : step.kind == StepKind::kAdd                                   ? 2
                     : step.kind == StepKind::kRelu || step.kind == StepKind::kPrelu ? 3
                                                                                     : 0;
    if (next <= rank) return false;
    rank = next;
  }
  return true;
}

EndingPlan::EndingPlan(const Graph& graph, const Node& node) {
  const Epilogue& e = node.epilogue;
  const Shape& out = graph.values[size_t(node.outputs[0])].shape;
  finish_.channels = finish_.pitch = out.channels;
  finish_.threshold = spread(e.threshold, out.channels, &threshold_);
  for (const EpilogueStep& step : e.steps) {
    if (step.kind == StepKind::kFma) {
      finish_.scale = spread(step.scale, out.channels, &scale_);
      finish_.bias = spread(step.bias, out.channels, &bias_);
    } else if (step.kind == StepKind::kAdd) {
      const Value& residual = graph.values[size_t(node.inputs[step.input])];
      finish_.residual_kind = residual.kind == Kind::kBits ? Finish::kBits : Finish::kFloat;
    } else {
      finish_.slope = spread(step.slope, out.channels, &slope_);
      finish_.activation = step.kind == StepKind::kRelu ? Finish::kRelu : Finish::kPrelu;
    }
  }
  floats_ = e.emit_float && !e.threshold;
  bits_ = e.emit_bits || e.threshold;
  pixels_ = out.pixels();
  words_ = out.words();
}

Finish EndingPlan::bind(const Call& call, size_t image) const {
  Finish f = finish_;
  const size_t floats = image * pixels_ * size_t(f.channels), words = image * pixels_ * words_;
  if (f.residual_kind == Finish::kFloat) f.residual = static_cast<const float*>(call.inputs[1]) + floats;
  if (f.residual_kind == Finish::kBits) f.residual = static_cast<const uint64_t*>(call.inputs[1]) + words;
  if (floats_) f.floats = static_cast<float*>(call.outputs[0]) + floats;
  if (bits_) f.bits = static_cast<uint64_t*>(call.outputs[floats_ ? 1 : 0]) + words;
  return f;
}

void EndingPlan::clear_tails(const Call& call) const {
  if (!bits_ || padded(finish_.channels) == words_ * 64) return;
  std::memset(call.outputs[floats_ ? 1 : 0], 0, call.images * pixels_ * words_ * sizeof(uint64_t));
}

}  // namespace bitedge
