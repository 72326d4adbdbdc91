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

inline F32x16 plus_minus_one(Mask negative) { return f_select(negative, f_set(-1.0f), f_set(1.0f)); }

// fma(y, scale, bias), + residual, activation, out: `n` lanes of the block that starts at `channel`.
inline void finish_any(const Finish& f, size_t pixel, int channel, int n, F32x16 y) {
  const size_t at = pixel * size_t(f.pitch) + size_t(channel);
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

// The epilogue of one block for a few pixels from `pixel` on, with its parameters in registers.
template <Ending kEnding>
class Tail {
 public:
  inline __attribute__((always_inline)) Tail(const Finish& f, size_t pixel, int channel)
      : f_(f), pixel_(pixel), channel_(channel), pitch_(size_t(f.pitch)) {
    const size_t at = pixel * pitch_ + size_t(channel);
    if (kEnding == Ending::kThreshold) threshold_ = i_load(f.threshold + channel);
    if (kEnding == Ending::kScale || kEnding == Ending::kResidual) {
      scale_ = f_load(f.scale + channel);
      bias_ = f_load(f.bias + channel);
      floats_ = f.floats + at;
    }
    if (kEnding == Ending::kResidual) residual_ = static_cast<const float*>(f.residual) + at;
    if (kEnding == Ending::kThreshold || kEnding == Ending::kResidual) {
      words_ = words_of(f) * (64 / kBlock);
      bits_ = reinterpret_cast<Bits16*>(f.bits) + pixel * words_ + size_t(channel) / kBlock;
    }
  }

  // Pixel `i` of them.
  inline __attribute__((always_inline)) void put(size_t i, F32x16 y) const {
    if (kEnding == Ending::kScale || kEnding == Ending::kResidual) {
      y = f_fma(y, scale_, bias_);
      if (kEnding == Ending::kResidual) y = f_add(y, f_load(residual_ + i * pitch_));
      f_store(floats_ + i * pitch_, y);
      if (kEnding == Ending::kResidual) bits_[i * words_] = Bits16(f_less(y, f_zero()));
    } else {
      const int left = f_.channels - channel_;
      finish_any(f_, pixel_ + i, channel_, left < kBlock ? left : kBlock, y);
    }
  }

  inline __attribute__((always_inline)) void put(size_t i, I32x16 acc) const {
    if (kEnding == Ending::kThreshold) {
      bits_[i * words_] = Bits16(i_less(acc, threshold_));
    } else if (kEnding == Ending::kAny && f_.accumulators) {
      i_store(f_.accumulators + (pixel_ + i) * size_t(f_.blocks) * kBlock + size_t(channel_), acc);
    } else if (kEnding == Ending::kAny && f_.threshold) {
      const int left = f_.channels - channel_;
      const Mask lanes = left < kBlock ? (1u << left) - 1 : 0xffff;
      store_bits(f_, pixel_ + i, channel_, i_less(acc, i_load(f_.threshold + channel_)) & lanes);
    } else {
      put(i, i_float(acc));
    }
  }

 private:
  const Finish& f_;
  size_t pixel_;
  int channel_;
  size_t pitch_, words_;
  I32x16 threshold_;
  F32x16 scale_, bias_;
  float* floats_;
  const float* residual_;
  Bits16* bits_;
};

}  // namespace
}  // namespace bitedge
