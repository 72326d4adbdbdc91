// The epilogue on sixteen lanes. Included by the file of each instruction set, after its vector header.
#define BITEDGE_UNROLL _Pragma("GCC unroll 16")

namespace bitedge {
namespace {

// How much of an epilogue is known when a kernel is compiled. The ones that
// dominate networks have no test left inside:
// kThreshold; kScale: scale and bias, out as floats; kResidual: with a float residual, out as floats and as bits.
enum class Ending { kThreshold, kScale, kResidual, kAny };

inline Ending ending_of(const Finish& f) {
  if (f.accumulators || f.channels % kBlock) return Ending::kAny;
  if (f.threshold) return Ending::kThreshold;
  if (!f.scale || !f.floats || f.activation != Finish::kLinear) return Ending::kAny;
  if (f.residual_kind == Finish::kNone && !f.bits) return Ending::kScale;
  return f.residual_kind == Finish::kFloat && f.bits ? Ending::kResidual : Ending::kAny;
}

// Sixteen bits inside a word.
typedef uint16_t __attribute__((may_alias)) Bits16;

inline size_t words_of(const Finish& f) { return (size_t(f.channels) + 63) / 64; }

// Sixteen bits of a map of bits; the layer has cleared what lies behind the last block.
inline void store_bits(const Finish& f, size_t pixel, int channel, Mask bits) {
  reinterpret_cast<Bits16*>(f.bits + pixel * words_of(f))[channel / kBlock] = uint16_t(bits);
}

inline F16 plus_minus_one(Mask negative) { return f_select(negative, f_set(-1.0f), f_set(1.0f)); }

// fma(y, scale, bias), + residual, activation, out: `n` lanes of the block that starts at `channel`.
inline void finish_any(const Finish& f, size_t pixel, int channel, int n, F16 y) {
  const size_t at = pixel * size_t(f.channels) + size_t(channel);
  if (f.scale) y = f_fma(y, f_load(f.scale + channel), f_load(f.bias + channel));
  if (f.residual_kind == Finish::kFloat) {
    const float* residual = static_cast<const float*>(f.residual) + at;
    y = f_add(y, n == kBlock ? f_load(residual) : f_load(residual, n));
  } else if (f.residual_kind == Finish::kBits) {
    const uint64_t* row = static_cast<const uint64_t*>(f.residual) + pixel * words_of(f);
    y = f_add(y, plus_minus_one(reinterpret_cast<const Bits16*>(row)[channel / kBlock]));
  }
  if (f.activation == Finish::kRelu) y = f_select(f_less(y, f_zero()), f_zero(), y);
  if (f.activation == Finish::kPrelu) y = f_select(f_less(y, f_zero()), f_mul(y, f_load(f.slope + channel)), y);
  if (f.floats) n == kBlock ? f_store(f.floats + at, y) : f_store(f.floats + at, y, n);
  if (f.bits) store_bits(f, pixel, channel, f_less(y, f_zero()) & ((1u << n) - 1));
}

template <Ending kEnding>
inline void finish(const Finish& f, size_t pixel, int channel, F16 y) {
  if (kEnding == Ending::kScale || kEnding == Ending::kResidual) {
    const size_t at = pixel * size_t(f.channels) + size_t(channel);
    y = f_fma(y, f_load(f.scale + channel), f_load(f.bias + channel));
    if (kEnding == Ending::kResidual) y = f_add(y, f_load(static_cast<const float*>(f.residual) + at));
    f_store(f.floats + at, y);
    if (kEnding == Ending::kResidual) store_bits(f, pixel, channel, f_less(y, f_zero()));
  } else {
    const int left = f.channels - channel;
    finish_any(f, pixel, channel, left < kBlock ? left : kBlock, y);
  }
}

template <Ending kEnding>
inline void finish(const Finish& f, size_t pixel, int channel, I16 acc) {
  if (kEnding == Ending::kThreshold) {
    store_bits(f, pixel, channel, i_less(acc, i_load(f.threshold + channel)));
  } else if (kEnding == Ending::kAny && f.accumulators) {
    i_store(f.accumulators + pixel * size_t(f.blocks) * kBlock + size_t(channel), acc);
  } else if (kEnding == Ending::kAny && f.threshold) {
    const int left = f.channels - channel;
    const Mask lanes = left < kBlock ? (1u << left) - 1 : 0xffff;
    store_bits(f, pixel, channel, i_less(acc, i_load(f.threshold + channel)) & lanes);
  } else {
    finish<kEnding>(f, pixel, channel, i_float(acc));
  }
}

}  // namespace
}  // namespace bitedge
