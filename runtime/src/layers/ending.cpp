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

EndingPlan::EndingPlan(const Node& node, const Value* residual, const Shape& out) {
  const Epilogue& e = node.epilogue;
  finish_.channels = finish_.pitch = out.channels;
  finish_.threshold = spread(e.threshold, out.channels, &threshold_);
  finish_.scale = spread(e.scale, out.channels, &scale_);
  finish_.bias = spread(e.bias, out.channels, &bias_);
  finish_.slope = spread(e.slope, out.channels, &slope_);
  finish_.activation = e.activation == Activation::kRelu    ? Finish::kRelu
                       : e.activation == Activation::kPrelu ? Finish::kPrelu
                                                            : Finish::kLinear;
  if (residual) finish_.residual_kind = residual->kind == Kind::kBits ? Finish::kBits : Finish::kFloat;
  floats_ = e.emit_float && !e.threshold;
  bits_ = e.emit_bits || e.threshold;
  pixels_ = out.pixels();
  words_ = out.words();
}

Finish EndingPlan::bind(const Call& call, size_t image) const {
  Finish f = finish_;
  const size_t floats = image * pixels_ * size_t(f.channels), words = image * pixels_ * words_;
  if (f.residual_kind == Finish::kFloat) f.residual = static_cast<const float*>(call.residual) + floats;
  if (f.residual_kind == Finish::kBits) f.residual = static_cast<const uint64_t*>(call.residual) + words;
  if (floats_) f.floats = static_cast<float*>(call.first) + floats;
  if (bits_) f.bits = static_cast<uint64_t*>(floats_ ? call.second : call.first) + words;
  return f;
}

void EndingPlan::clear_tails(const Call& call) const {
  if (!bits_ || padded(finish_.channels) == words_ * 64) return;
  std::memset(floats_ ? call.second : call.first, 0, call.images * pixels_ * words_ * sizeof(uint64_t));
}

}  // namespace bitedge
