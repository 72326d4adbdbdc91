// The epilogue on sixteen lanes. Included by the file of each instruction set, after its vector header.
#include "kernels/functions.inl"

#define BITEDGE_UNROLL _Pragma("GCC unroll 16")

namespace bitedge {
namespace {

// Sixteen bits inside a word.
typedef uint16_t __attribute__((may_alias)) Bits16;

inline size_t words_of(const BoundEpilogue& e) { return (size_t(e.channels) + 63) / 64; }

// Sixteen bits of a map of bits; the layer has cleared what lies behind the last block.
inline void store_bits(const BoundEpilogue& e, size_t pixel, int channel, Mask bits) {
  reinterpret_cast<Bits16*>(e.bits + pixel * words_of(e))[channel / kBlock] = uint16_t(bits);
}

inline F32x16 plus_minus_one(Mask negative) { return f_select(negative, f_set(-1.0f), f_set(1.0f)); }

inline F32x16 load_up_to(const float* p, int n) { return n >= kBlock ? f_load(p) : f_load(p, n); }

inline void store_up_to(float* p, F32x16 x, int n) { n >= kBlock ? f_store(p, x) : f_store(p, x, n); }

// What an add or a multiply reads: `n` lanes of the block that starts at `channel`.
inline F32x16 load_operand(const BoundEpilogue& e, const BoundStep& s, size_t pixel, int channel, int n) {
  const void* from = e.operand(s);
  if (s.operand_kind == BoundStep::kBits) {
    const uint64_t* row = static_cast<const uint64_t*>(from) + pixel * words_of(e);
    return plus_minus_one(reinterpret_cast<const Bits16*>(row)[channel / kBlock]);
  }
  const size_t row =
      s.operand_kind == BoundStep::kVector ? pixel / e.pixels * size_t(e.channels) : pixel * size_t(e.pitch);
  return load_up_to(static_cast<const float*>(from) + row + size_t(channel), n);
}

// y[i] = step(y[i], i) for all pixels.
template <typename Step>
inline __attribute__((always_inline)) void for_each(F32x16* y, int pixels, const Step& step) {
  for (int i = 0; i < pixels; i++) y[i] = step(y[i], i);
}

// One step on all pixels, so that what it is is asked once.
__attribute__((noinline)) void run_step(const BoundEpilogue& e, const BoundStep& s, size_t pixel, int channel, int n,
                                        F32x16* y, int pixels) {
  switch (s.kind) {
    case StepKind::kFma: {
      const F32x16 scale = f_load(s.scale + channel), bias = f_load(s.bias + channel);
      return for_each(y, pixels, [&](F32x16 x, int) { return f_fma(x, scale, bias); });
    }
    case StepKind::kAdd:
      return for_each(y, pixels,
                      [&](F32x16 x, int i) { return f_add(x, load_operand(e, s, pixel + size_t(i), channel, n)); });
    case StepKind::kMultiply:
      return for_each(y, pixels,
                      [&](F32x16 x, int i) { return f_mul(x, load_operand(e, s, pixel + size_t(i), channel, n)); });
    case StepKind::kRelu:
      return for_each(y, pixels, [&](F32x16 x, int) { return f_greater_of(f_zero(), x); });
    case StepKind::kPrelu: {
      const F32x16 slope = f_load(s.scale + channel);
      return for_each(y, pixels, [&](F32x16 x, int) { return f_prelu(x, slope); });
    }
    case StepKind::kClamp: {
      const F32x16 min = f_set(s.min), max = f_set(s.max);
      return for_each(y, pixels, [&](F32x16 x, int) { return f_clamp(x, min, max); });
    }
    case StepKind::kHardsigmoid:
      return for_each(y, pixels, [](F32x16 x, int) { return hardsigmoid(x); });
    case StepKind::kHardswish:
      return for_each(y, pixels, [](F32x16 x, int) { return hardswish(x); });
    case StepKind::kSigmoid:
      return for_each(y, pixels, [](F32x16 x, int) { return sigmoid(x); });
    case StepKind::kTanh:
      return for_each(y, pixels, [](F32x16 x, int) { return tanh_of(x); });
    case StepKind::kSilu:
      return for_each(y, pixels, [](F32x16 x, int) { return silu(x); });
    case StepKind::kGelu:
      return for_each(y, pixels, [](F32x16 x, int) { return gelu(x); });
    case StepKind::kGeluTanh:
      return for_each(y, pixels, [](F32x16 x, int) { return gelu_tanh(x); });
  }
}

// The whole epilogue of one block for `pixels` pixels from `pixel` on, whatever its steps. `y` is overwritten.
__attribute__((noinline)) void run_steps(const BoundEpilogue& e, size_t pixel, int channel, F32x16* y, int pixels) {
  const int left = e.channels - channel, n = left < kBlock ? left : kBlock;
  if (e.count == 1 && e.scale && !e.bits) {  // logits: their number is seldom one of whole blocks
    const F32x16 scale = f_load(e.scale + channel), bias = f_load(e.bias + channel);
    float* to = e.floats + pixel * size_t(e.pitch) + size_t(channel);
    for (int i = 0; i < pixels; i++) store_up_to(to + size_t(i) * size_t(e.pitch), f_fma(y[i], scale, bias), n);
    return;
  }
  for (int32_t k = 0; k <= e.count; k++) {
    if (k == e.floats_after && e.floats) {
      float* to = e.floats + pixel * size_t(e.pitch) + size_t(channel);
      for (int i = 0; i < pixels; i++) store_up_to(to + size_t(i) * size_t(e.pitch), y[i], n);
    }
    if (k < e.count) run_step(e, e.steps[k], pixel, channel, n, y, pixels);
  }
  if (!e.bits) return;
  const Mask lanes = (1u << n) - 1;
  for (int i = 0; i < pixels; i++) store_bits(e, pixel + size_t(i), channel, f_less(y[i], f_zero()) & lanes);
}

// The epilogue of one block for kPixels pixels from `pixel` on, with its parameters in registers: put() each of them,
// then done().
template <int kPixels, EpilogueKind kKind>
class EpilogueTile {
  static constexpr bool kShifted = kKind == EpilogueKind::kShifted;
  static constexpr bool kRescaled = kKind == EpilogueKind::kRescaled;
  static constexpr int kShifts = kShifted ? 4 : kRescaled ? 7 : 0;
  static constexpr bool kAdds = kKind == EpilogueKind::kResidual || kShifts;
  static constexpr bool kFloats = kKind == EpilogueKind::kScale || kAdds;
  static constexpr bool kBits = kKind == EpilogueKind::kThreshold || kAdds;
  static constexpr bool kSteps = kKind == EpilogueKind::kSteps;
  static_assert(kFloats || kBits || kSteps);

 public:
  inline __attribute__((always_inline)) EpilogueTile(const BoundEpilogue& e, size_t pixel, int channel)
      : e_(e), pixel_(pixel), channel_(channel), pitch_(size_t(e.pitch)) {
    const size_t at = pixel * pitch_ + size_t(channel);
    if (kKind == EpilogueKind::kThreshold) threshold_ = i_load(e.threshold + channel);
    if (kFloats) {
      scale_ = f_load(e.scale + channel);
      bias_ = f_load(e.bias + channel);
      floats_ = e.floats + at;
    }
    if (kAdds) residual_ = e.residual + at;
    BITEDGE_UNROLL for (int k = 0; k < kShifts; k++) shifts_[k] = f_load(e.shifts[k] + channel);
    if (kBits) {
      words_ = words_of(e) * (64 / kBlock);
      bits_ = reinterpret_cast<Bits16*>(e.bits) + pixel * words_ + size_t(channel) / kBlock;
    }
  }

  // Pixel `i` of them.
  inline __attribute__((always_inline)) void put(size_t i, F32x16 y) {
    if (kSteps) {
      y_[i] = y;
      return;
    }
    y = f_fma(y, scale_, bias_);
    if (kAdds) y = f_add(y, f_load(residual_ + i * pitch_));
    if (kShifted) y = f_add(f_prelu(f_add(y, shifts_[0]), shifts_[1]), shifts_[2]);
    if (kRescaled) y = f_fma(f_prelu(f_fma(y, shifts_[0], shifts_[1]), shifts_[2]), shifts_[3], shifts_[4]);
    f_store(floats_ + i * pitch_, y);
    if (kRescaled) y = f_fma(y, shifts_[5], shifts_[6]);
    if (kAdds) bits_[i * words_] = Bits16(f_less(y, kShifted ? shifts_[3] : f_zero()));
  }

  inline __attribute__((always_inline)) void put(size_t i, I32x16 acc) {
    if (kKind == EpilogueKind::kThreshold) {
      bits_[i * words_] = Bits16(i_less(acc, threshold_));
    } else if (kSteps && e_.threshold) {
      const int left = e_.channels - channel_;
      const Mask lanes = left < kBlock ? (1u << left) - 1 : 0xffff;
      store_bits(e_, pixel_ + i, channel_, i_less(acc, i_load(e_.threshold + channel_)) & lanes);
    } else {
      put(i, i_float(acc));
    }
  }

  inline __attribute__((always_inline)) void done() {
    if (kSteps && !e_.threshold) run_steps(e_, pixel_, channel_, y_, kPixels);
  }

 private:
  const BoundEpilogue& e_;
  size_t pixel_;
  int channel_;
  size_t pitch_, words_;
  I32x16 threshold_;
  F32x16 scale_, bias_, shifts_[kShifts ? kShifts : 1], y_[kSteps ? kPixels : 1];
  float* floats_;
  const float* residual_;
  Bits16* bits_;
};

}  // namespace
}  // namespace bitedge
