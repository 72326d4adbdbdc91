#include "layers/epilogue.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace bitedge {
namespace {

size_t padded(int32_t channels) { return (size_t(channels) + kBlock - 1) / kBlock * kBlock; }

}  // namespace

EpilogueBinder::EpilogueBinder(const Graph& graph, const Node& node, Leading leading) {
  const Epilogue& e = node.epilogue;
  const Shape& out = graph.values[size_t(node.outputs[0])].shape;
  bound_.channels = bound_.pitch = out.channels;
  bound_.pixels = out.pixels();
  words_ = out.words();
  floats_ = e.emit_float && !e.threshold;
  bits_ = e.emit_bits || e.threshold;
  if (e.threshold) {
    threshold_ = Aligned<int32_t>(padded(out.channels));
    for (size_t c = 0; c < e.threshold.size; c++) threshold_[c] = e.threshold[c];
    bound_.threshold = threshold_.data();
  }
  const bool folded = leading == Leading::kFolded && !e.steps.empty() && e.steps[0].kind == StepKind::kFma;
  for (size_t k = folded ? 1 : 0; k < e.steps.size(); k++) add_step(graph, node, e.steps[k]);
  bound_.floats_after = int32_t(steps_.size());
  for (const EpilogueStep& step : e.steps_to_bits) add_step(graph, node, step);
  bound_.steps = steps_.data();
  bound_.count = int32_t(steps_.size());
  if (!steps_.empty() && steps_[0].kind == StepKind::kFma) {
    bound_.scale = steps_[0].scale;
    bound_.bias = steps_[0].bias;
  }
  bound_.kind = choose_kind();
}

const float* EpilogueBinder::spread(const View<float>& from) {
  if (!from) return nullptr;
  parameters_.emplace_back(padded(bound_.channels));
  for (size_t c = 0; c < size_t(bound_.channels); c++) parameters_.back()[c] = from[from.size == 1 ? 0 : c];
  return parameters_.back().data();
}

const float* EpilogueBinder::constant(float value) { return spread({&value, 1}); }

void EpilogueBinder::add_step(const Graph& graph, const Node& node, const EpilogueStep& step) {
  BoundStep bound;
  bound.kind = step.kind;
  bound.scale = spread(step.kind == StepKind::kPrelu ? step.slope : step.scale);
  bound.bias = spread(step.bias);
  bound.min = step.min;
  bound.max = step.max;
  if (step.kind == StepKind::kAdd || step.kind == StepKind::kMultiply) {
    const Value& value = graph.values[size_t(node.inputs[step.input])];
    bound.input = step.input;
    bound.image_bytes = value.bytes();
    bound.operand_kind = value.kind == Kind::kBits               ? BoundStep::kBits
                         : value.shape.pixels() == bound_.pixels ? BoundStep::kFloats
                                                                 : BoundStep::kVector;
  }
  steps_.push_back(bound);
}

EpilogueKind EpilogueBinder::choose_kind() {
  const BoundEpilogue& b = bound_;
  if (b.channels % kBlock) return EpilogueKind::kSteps;
  if (b.threshold) return EpilogueKind::kThreshold;
  const auto is = [&](size_t k, StepKind kind) { return k < steps_.size() && steps_[k].kind == kind; };
  const bool scale = is(0, StepKind::kFma);
  if (b.count == 0 && !bits_) return EpilogueKind::kPlain;
  if (b.count == 1 && is(0, StepKind::kRelu) && !bits_) return EpilogueKind::kRelu;
  if (b.count == (scale ? 1 : 0) && !floats_) return EpilogueKind::kSign;
  if (b.count == 1 && scale && !bits_) return EpilogueKind::kScale;
  if (!floats_ || !bits_) return EpilogueKind::kSteps;
  const bool residual = scale && is(1, StepKind::kAdd) && steps_[1].operand_kind == BoundStep::kFloats;
  if (residual && b.count == 2) return EpilogueKind::kResidual;
  return residual ? fill_shifts() : EpilogueKind::kSteps;
}

// fma, prelu and fma before the floats, and fma behind them, each where it is there; a step that is not does nothing:
// y·1 + (-0) and slope 1 leave every y as it is, -0 among them.
EpilogueKind EpilogueBinder::fill_shifts() {
  const BoundStep* slots[4] = {};
  constexpr StepKind kKinds[4] = {StepKind::kFma, StepKind::kPrelu, StepKind::kFma, StepKind::kFma};
  size_t slot = 0;
  for (size_t k = 2; k < steps_.size(); k++) {
    const bool to_bits = k >= size_t(bound_.floats_after);
    if (to_bits && slot < 3) slot = 3;
    while (slot < 4 && kKinds[slot] != steps_[k].kind) slot++;
    if (slot >= (to_bits ? size_t(4) : size_t(3))) return EpilogueKind::kSteps;
    slots[slot++] = &steps_[k];
  }
  const float *one = constant(1.0f), *nothing = constant(-0.0f);
  bool ones = true;
  const float *scale[4], *bias[4];
  for (size_t i = 0; i < 4; i++) {
    scale[i] = slots[i] ? slots[i]->scale : one;  // the slope of prelu
    bias[i] = slots[i] && kKinds[i] == StepKind::kFma ? slots[i]->bias : nothing;
    ones &= i == 1 || std::equal(one, one + bound_.channels, scale[i]);
  }
  if (!ones) {
    const float* all[] = {scale[0], bias[0], scale[1], scale[2], bias[2], scale[3], bias[3]};
    std::copy(std::begin(all), std::end(all), bound_.shifts);
    return EpilogueKind::kRescaled;
  }
  parameters_.emplace_back(padded(bound_.channels));
  for (size_t c = 0; c < size_t(bound_.channels); c++) parameters_.back()[c] = -bias[3][c];
  const float* shifts[] = {bias[0], scale[1], bias[2], parameters_.back().data()};
  std::copy(std::begin(shifts), std::end(shifts), bound_.shifts);
  return EpilogueKind::kShifted;
}

BoundEpilogue EpilogueBinder::bind(const Call& call, size_t image) const {
  BoundEpilogue e = bound_;
  e.inputs = call.inputs;
  e.image = image;
  if (e.kind == EpilogueKind::kResidual || e.kind == EpilogueKind::kShifted || e.kind == EpilogueKind::kRescaled) {
    e.residual = static_cast<const float*>(e.operand(steps_[1]));
  }
  if (floats_) e.floats = static_cast<float*>(call.outputs[0]) + image * e.pixels * size_t(e.channels);
  if (bits_) e.bits = static_cast<uint64_t*>(call.outputs[floats_ ? 1 : 0]) + image * e.pixels * words_;
  return e;
}

void EpilogueBinder::clear_tails(const Call& call) const {
  if (!bits_ || padded(bound_.channels) == words_ * 64) return;
  std::memset(call.outputs[floats_ ? 1 : 0], 0, call.images * bound_.pixels * words_ * sizeof(uint64_t));
}

}  // namespace bitedge
