// The three forms of an epilogue in the file, read into one.
#include <iterator>

#include "file/limits.h"
#include "graph/infer.h"
#include "graph/inference.h"

namespace bitedge {
namespace {

// In the order of StepKind.
constexpr const char* kSteps[] = {"fma",       "add",     "multiply", "relu", "prelu", "clamp",    "hardsigmoid",
                                  "hardswish", "sigmoid", "tanh",     "silu", "gelu",  "gelu_tanh"};
static_assert(std::size(kSteps) == size_t(StepKind::kGeluTanh) + 1);

bool same(const Shape& a, const Shape& b) {
  return a.height == b.height && a.width == b.width && a.channels == b.channels;
}

std::string text(const Shape& shape) { return join(shape.height, " x ", shape.width, " x ", shape.channels); }

}  // namespace

const char* step_name(StepKind kind) { return kSteps[static_cast<size_t>(kind)]; }

void Inference::epilogue(Shape out, bool integer) {
  const std::string_view form = attributes_.string(key("epilogue"));
  if (form == "threshold") {
    if (!integer) refuse("a threshold needs an integer convolution");
    if (inputs() > 1) refuse("a threshold takes no residual");
    node_.epilogue.threshold = tensors_.i32(tensor("threshold"), {static_cast<uint64_t>(out.channels)});
    node_.epilogue.emit_bits = true;
    return add_value(Kind::kBits, out);
  }
  if (form == "affine") {
    affine(static_cast<uint64_t>(out.channels));
  } else if (form == "steps" && version_ >= 2) {
    steps(out);
  } else {
    refuse("epilogue is ", quoted(form), ", expected 'threshold'",
           version_ >= 2 ? ", 'affine' or 'steps'" : " or 'affine'");
  }
  for (const EpilogueStep& step : node_.epilogue.steps) expect_operand(step, out);
  emit(out);
}

void Inference::affine(uint64_t count) {
  if (inputs() > 2) refuse(inputs(), " inputs, expected 1, and at most one residual");
  if (has("scale") != has("bias")) refuse("scale and bias come together or not at all");
  EpilogueStep step;
  const auto add = [&](StepKind kind) {
    step.kind = kind;
    node_.epilogue.steps.push_back(step);
    step = {};
  };
  if (has("scale")) {
    step.scale = f32("scale", count);
    step.bias = f32("bias", count);
    add(StepKind::kFma);
  }
  if (inputs() == 2) {
    step.input = 1;
    add(StepKind::kAdd);
  }
  const std::string_view activation = attributes_.string(key("activation"));
  if (activation == "relu") {
    add(StepKind::kRelu);
  } else if (activation == "prelu") {
    step.slope = slope("slope", count);
    add(StepKind::kPrelu);
  } else if (activation != "none") {
    refuse("activation is ", quoted(activation), ", expected 'none', 'relu' or 'prelu'");
  }
}

void Inference::steps(const Shape& out) {
  const auto count = static_cast<uint64_t>(out.channels);
  const std::vector<std::string_view> names = attributes_.strings(key("steps"));
  if (names.empty() || names.size() > limits::kSteps) {
    refuse(names.size(), " steps, expected 1 to ", limits::kSteps);
  }
  size_t operands = 1;
  for (size_t k = 0; k < names.size(); ++k) {
    size_t row = 0;
    while (row < std::size(kSteps) && names[k] != kSteps[row]) ++row;
    if (row == std::size(kSteps)) refuse("step ", k, " is the unknown ", quoted(names[k]));
    const std::string prefix = join("step.", k, ".");
    EpilogueStep step;
    step.kind = static_cast<StepKind>(row);
    if (step.kind == StepKind::kFma) {
      step.scale = f32(prefix + "scale", count);
      step.bias = f32(prefix + "bias", count);
    } else if (step.kind == StepKind::kPrelu) {
      step.slope = slope(prefix + "slope", count);
    } else if (step.kind == StepKind::kClamp) {
      step.min = attributes_.f32(key(prefix + "min"));
      step.max = attributes_.f32(key(prefix + "max"));
      if (!(step.min <= step.max)) refuse("step ", k, " clamps, but its min is not at most its max");
    } else if (step.kind == StepKind::kAdd || step.kind == StepKind::kMultiply) {
      step.input = operands++;
    }
    node_.epilogue.steps.push_back(step);
  }
  if (inputs() != operands) {
    refuse(inputs(), " inputs, expected ", operands, ": one, and one for each 'add' and 'multiply' of its steps");
  }
}

// What an add or a multiply reads.
void Inference::expect_operand(const EpilogueStep& step, const Shape& out) const {
  const bool multiply = step.kind == StepKind::kMultiply;
  if (step.kind != StepKind::kAdd && !multiply) return;
  const Value& operand = input(step.input);
  const char* role = multiply ? "the factor " : "the residual ";
  if (operand.kind == Kind::kUint8) refuse(role, quoted(operand.name), " is uint8");
  if (multiply && operand.kind == Kind::kBits) refuse(role, quoted(operand.name), " is bits, expected float32");
  if (same(operand.shape, out) || (multiply && same(operand.shape, {1, 1, out.channels}))) return;
  refuse(role, quoted(operand.name), " is ", text(operand.shape), ", the output ", text(out));
}

void Inference::emit(const Shape& out) {
  Epilogue& epilogue = node_.epilogue;
  const std::string_view form = attributes_.string(key("emit"));
  epilogue.emit_float = form == "float" || form == "float+bits";
  epilogue.emit_bits = form == "bits" || form == "float+bits";
  if (!epilogue.emit_float && !epilogue.emit_bits) {
    refuse("emit is ", quoted(form), ", expected 'float', 'bits' or 'float+bits'");
  }
  if (epilogue.emit_float) add_value(Kind::kFloat, out);
  if (epilogue.emit_bits) add_value(Kind::kBits, out);
}

}  // namespace bitedge
