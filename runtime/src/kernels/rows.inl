// The operators without weights, sixteen channels at a time, in exactly the order of scalar.cpp. Included by the file
// of each instruction set, after its vector header, epilogue.inl and lanes.inl.
namespace bitedge {
namespace {

inline size_t row_pitch(const Pool2d& p) { return size_t(p.dilation_h) * size_t(p.in_w) * size_t(p.in_pitch); }
inline size_t column_pitch(const Pool2d& p) { return size_t(p.dilation_w) * size_t(p.in_pitch); }

// 3x3 with stride 2, the networks' first pooling: a window shares its last column with the next one. Rows and columns
// outside of the image are taken from inside of the window instead, which changes no maximum. kBlocks blocks from
// channel `c` on, so that memory is read in order.
template <int kBlocks>
void max_pool_by_columns(const Pool2d& p, int32_t y, size_t c) {
  const size_t pixel = size_t(p.in_pitch), down = size_t(p.in_w) * pixel, next = size_t(p.out_pitch);
  const int32_t top = y * 2 - p.pad_top, first = top < 0 ? 0 : top, last = top + 2 < p.in_h ? top + 2 : p.in_h - 1;
  const float* in = static_cast<const float*>(p.input) + size_t(first) * down + c;
  const size_t middle = first < last ? down : 0, bottom = size_t(last - first) * down;
  float* out = static_cast<float*>(p.output) + size_t(y) * size_t(p.out_w) * next + c;
  const auto column = [&](int32_t x) { return in + size_t(x < 0 ? 0 : x < p.in_w ? x : p.in_w - 1) * pixel; };
  const auto largest = [&](const float* at, F32x16 best) {
    best = f_greater_of(f_load(at), best);
    best = f_greater_of(f_load(at + middle), best);
    return f_greater_of(f_load(at + bottom), best);
  };
  const F32x16 least = f_set(-__builtin_inff());
  F32x16 shared[kBlocks];
  BITEDGE_UNROLL for (int j = 0; j < kBlocks; j++) shared[j] = largest(column(-p.pad_left) + j * kBlock, least);
  for (int32_t x = 0; x < p.out_w; x++, out += next) {
    const float *center = column(x * 2 - p.pad_left + 1), *right = column(x * 2 - p.pad_left + 2);
    BITEDGE_UNROLL for (int j = 0; j < kBlocks; j++) {
      const F32x16 best = largest(center + j * kBlock, shared[j]);
      shared[j] = largest(right + j * kBlock, least);
      f_store(out + j * kBlock, f_add(f_greater_of(shared[j], best), f_zero()));
    }
  }
}

void max_pool_by_columns(const Pool2d& p) {
  for (int32_t y = p.row_begin; y < p.row_end; y++) {
    size_t c = 0;
    for (; c + 4 * kBlock <= size_t(p.lanes); c += 4 * kBlock) max_pool_by_columns<4>(p, y, c);
    for (; c < size_t(p.lanes); c += kBlock) max_pool_by_columns<1>(p, y, c);
  }
}

void max_pool_float(const Pool2d& p) {
  const bool columns_shared = p.kernel_h == 3 && p.kernel_w == 3 && p.stride_h == 2 && p.stride_w == 2 &&
                              p.dilation_h == 1 && p.dilation_w == 1 && p.lanes % kBlock == 0;
  const bool windows_touch = p.pad_left < 3 && 2 * (p.out_w - 1) - p.pad_left < p.in_w &&
                             2 * p.row_begin - p.pad_top > -3 && 2 * (p.row_end - 1) - p.pad_top < p.in_h;
  if (columns_shared && windows_touch) return max_pool_by_columns(p);
  const size_t down = row_pitch(p), right = column_pitch(p);
  for_windows(p, [&](const Place& at) {
    const float* in = static_cast<const float*>(p.input) + at.first * size_t(p.in_pitch);
    float* out = static_cast<float*>(p.output) + at.pixel * size_t(p.out_pitch);
    for (int c = 0; c < p.lanes; c += kBlock) {
      F32x16 best = f_set(-__builtin_inff());
      for (int32_t i = 0; i < at.rows.size(); i++) {
        for (int32_t j = 0; j < at.columns.size(); j++) {
          best = f_greater_of(load_up_to(in + size_t(i) * down + size_t(j) * right + c, p.lanes - c), best);
        }
      }
      store_up_to(out + c, f_add(best, f_zero()), p.lanes - c);
    }
  });
}

// The mean of rows x columns pixels, kBlocks blocks at a time, so that sums do not wait for each other. They are added
// in order, and divided by `count`.
struct Mean {
  size_t down, right;  // floats from one row to the next, and from one column
  int32_t rows, columns;
  int64_t count;

  template <int kBlocks>
  inline __attribute__((always_inline)) void blocks(const float* in, float* out, int n) const {
    F32x16 total[kBlocks];
    BITEDGE_UNROLL for (int k = 0; k < kBlocks; k++) total[k] = f_zero();
    for (int32_t i = 0; i < rows; i++) {
      const float* at = in + size_t(i) * down;
      for (int32_t j = 0; j < columns; j++, at += right) {
        BITEDGE_UNROLL for (int k = 0; k < kBlocks; k++) {
          total[k] = f_add(total[k], kBlocks > 1 ? f_load(at + k * kBlock) : load_up_to(at, n));
        }
      }
    }
    const bool power_of_two = (count & (count - 1)) == 0;  // then the product is the quotient
    const F32x16 divisor = f_set(float(count)), factor = f_set(1 / float(count));
    BITEDGE_UNROLL for (int k = 0; k < kBlocks; k++) {
      const F32x16 mean = power_of_two ? f_mul(total[k], factor) : f_div(total[k], divisor);
      kBlocks > 1 ? f_store(out + k * kBlock, mean) : store_up_to(out, mean, n);
    }
  }

  void run(const float* in, float* out, int channels) const {
    int c = 0;
    for (; c + 4 * kBlock <= channels; c += 4 * kBlock) blocks<4>(in + c, out + c, kBlock);
    for (; c < channels; c += kBlock) blocks<1>(in + c, out + c, channels - c);
  }
};

void avg_pool(const Pool2d& p) {
  for_windows(p, [&](const Place& at) {
    Mean mean = {row_pitch(p), column_pitch(p), at.rows.size(), at.columns.size(), 0};
    const int64_t rows = p.counted_h - at.top, columns = p.counted_w - at.left;
    mean.count = p.count_include_pad
                     ? (rows < p.kernel_h ? rows : p.kernel_h) * (columns < p.kernel_w ? columns : p.kernel_w)
                     : int64_t(mean.rows) * mean.columns;
    mean.run(static_cast<const float*>(p.input) + at.first * size_t(p.in_pitch),
             static_cast<float*>(p.output) + at.pixel * size_t(p.out_pitch), p.lanes);
  });
}

void adaptive_avg_pool(const AdaptivePool& p) {
  const auto first = [](int64_t i, int64_t from, int64_t to) { return i * from / to; };
  const auto last = [](int64_t i, int64_t from, int64_t to) { return ((i + 1) * from + to - 1) / to; };
  const size_t pixel = size_t(p.channels);
  for (int32_t y = p.row_begin; y < p.row_end; y++) {
    const int64_t top = first(y, p.in_h, p.out_h), bottom = last(y, p.in_h, p.out_h);
    for (int32_t x = 0; x < p.out_w; x++) {
      const int64_t left = first(x, p.in_w, p.out_w), right = last(x, p.in_w, p.out_w);
      const Mean mean = {size_t(p.in_w) * pixel, pixel, int32_t(bottom - top), int32_t(right - left),
                         (bottom - top) * (right - left)};
      mean.run(p.input + size_t(top * p.in_w + left) * pixel,
               p.output + (size_t(y) * size_t(p.out_w) + size_t(x)) * pixel, p.channels);
    }
  }
}

// The larger of two signs has bit 0 if either has (bit 1 is -1): and. The smaller one: or, which is and of complements.
// kRows x kColumns words, whose loops are unrolled, or as many as the window says where that is 0.
template <int kRows, int kColumns>
inline __attribute__((always_inline)) void pool_words(const Pool2d& p, const Place& at) {
  const size_t down = row_pitch(p), right = column_pitch(p);
  const int32_t rows = kRows ? kRows : at.rows.size(), columns = kColumns ? kColumns : at.columns.size();
  const uint64_t* in = static_cast<const uint64_t*>(p.input) + at.first * size_t(p.in_pitch);
  uint64_t* out = static_cast<uint64_t*>(p.output) + at.pixel * size_t(p.out_pitch);
  for (size_t c = 0; c < size_t(p.lanes); c++) {
    const uint64_t flip = p.minimum ? p.minimum[c] : 0;
    uint64_t both = ~uint64_t(0);
    BITEDGE_UNROLL for (int32_t i = 0; i < rows; i++) {
      BITEDGE_UNROLL for (int32_t j = 0; j < columns; j++) both &= in[size_t(i) * down + size_t(j) * right + c] ^ flip;
    }
    out[c] = both ^ flip;
  }
}

void max_pool_bits(const Pool2d& p) {
  for_windows(p, [&](const Place& at) {
    const int32_t rows = at.rows.size(), columns = at.columns.size();
    if (rows == 2 && columns == 2) return pool_words<2, 2>(p, at);  // the windows of the networks
    if (rows == 3 && columns == 3) return pool_words<3, 3>(p, at);
    pool_words<0, 0>(p, at);
  });
}

void normalize(const Rows& r) {
  const uint8_t* in = static_cast<const uint8_t*>(r.input);
  // Whole periods of the channels that fill vectors: scale and bias repeat with period `channels`, vectors of 16.
  constexpr int kMost = 64;
  const size_t count = r.pixels * size_t(r.channels);
  size_t i = 0;
  if (r.channels <= kMost) {
    float scale[kMost * kBlock], bias[kMost * kBlock];
    for (int32_t j = 0; j < r.channels * kBlock; j++) {
      scale[j] = r.scale[j % r.channels];
      bias[j] = r.bias[j % r.channels];
    }
    const size_t period = size_t(r.channels) * kBlock;
    for (; i + period <= count; i += period) {
      for (size_t j = 0; j < period; j += kBlock) {
        f_store(r.output + i + j, f_fma(f_from_bytes(in + i + j), f_load(scale + j), f_load(bias + j)));
      }
    }
  }
  for (; i < count; i++) {
    const size_t c = i % size_t(r.channels);
    r.output[i] = __builtin_fmaf(float(in[i]), r.scale[c], r.bias[c]);
  }
}

// The order of scalar::sum.
inline float fold(F32x16 lanes) {
  float x[kBlock];
  f_store(x, lanes);
  for (int half = kBlock / 2; half > 0; half /= 2) {
    for (int l = 0; l < half; l++) x[l] += x[l + half];
  }
  return x[0];
}

void layer_norm(const Rows& r) {
  const int channels = r.channels;
  for (size_t pixel = 0; pixel < r.pixels; pixel++) {
    const float* in = static_cast<const float*>(r.input) + pixel * size_t(channels);
    float* out = r.output + pixel * size_t(channels);
    F32x16 total = f_zero();
    for (int c = 0; c < channels; c += kBlock) total = f_add(total, load_up_to(in + c, channels - c));
    const F32x16 mean = f_set(fold(total) / float(channels));
    F32x16 squares = f_zero();
    for (int c = 0; c < channels; c += kBlock) {
      const F32x16 d = f_sub(load_up_to(in + c, channels - c), mean);
      store_up_to(out + c, f_mul(d, d), channels - c);
      squares = f_add(squares, load_up_to(out + c, channels - c));
    }
    const F32x16 inverse = f_set(1.0f / __builtin_sqrtf(fold(squares) / float(channels) + r.eps));
    for (int c = 0; c < channels; c += kBlock) {
      const int n = channels - c;
      const F32x16 x = f_mul(f_sub(load_up_to(in + c, n), mean), inverse);
      store_up_to(out + c, f_fma(x, load_up_to(r.scale + c, n), load_up_to(r.bias + c, n)), n);
    }
  }
}

// kBlocks blocks from channel `c` on.
template <int kBlocks>
inline __attribute__((always_inline)) void row_sums(const NormRow& r, int c) {
  const int n = r.channels - c;
  const auto load = [&](const float* p, int k) {
    return kBlocks > 1 ? f_load(p + c + k * kBlock) : load_up_to(p + c, n);
  };
  F32x16 total[kBlocks], mean[kBlocks];
  BITEDGE_UNROLL for (int k = 0; k < kBlocks; k++) {
    total[k] = f_zero();
    mean[k] = r.mean ? load(r.mean, k) : f_zero();
  }
  const float* in = r.input;
  for (size_t i = 0; i < r.pixels; i++, in += r.channels) {
    BITEDGE_UNROLL for (int k = 0; k < kBlocks; k++) {
      const F32x16 x = load(in, k), d = f_sub(x, mean[k]);
      total[k] = r.mean ? f_fma(d, d, total[k]) : f_add(total[k], x);
    }
  }
  BITEDGE_UNROLL for (int k = 0; k < kBlocks; k++) {
    kBlocks > 1 ? f_store(r.output + c + k * kBlock, total[k]) : store_up_to(r.output + c, total[k], n);
  }
}

void row_sums(const NormRow& r) {
  int c = 0;
  for (; c + 4 * kBlock <= r.channels; c += 4 * kBlock) row_sums<4>(r, c);
  for (; c < r.channels; c += kBlock) row_sums<1>(r, c);
}

void row_norm(const NormRow& r) {
  for (int c = 0; c < r.channels; c += kBlock) {
    const int n = r.channels - c;
    const F32x16 mean = load_up_to(r.mean + c, n), inverse = load_up_to(r.inverse + c, n),
                 scale = load_up_to(r.scale + c, n), bias = load_up_to(r.bias + c, n);
    const float* in = r.input + c;
    float* out = r.output + c;
    for (size_t i = 0; i < r.pixels; i++, in += r.channels, out += r.channels) {
      store_up_to(out, f_fma(f_mul(f_sub(load_up_to(in, n), mean), inverse), scale, bias), n);
    }
  }
}

void softmax(const Rows& r) {
  const int channels = r.channels;
  for (size_t pixel = 0; pixel < r.pixels; pixel++) {
    const float* in = static_cast<const float*>(r.input) + pixel * size_t(channels);
    float* out = r.output + pixel * size_t(channels);
    float most = in[0];
    for (int c = 1; c < channels; c++) most = in[c] > most ? in[c] : most;
    F32x16 total = f_zero();
    for (int c = 0; c < channels; c += kBlock) {
      store_up_to(out + c, exp_negative(f_sub(load_up_to(in + c, channels - c), f_set(most))), channels - c);
      total = f_add(total, load_up_to(out + c, channels - c));
    }
    const F32x16 sum = f_set(fold(total));
    for (int c = 0; c < channels; c += kBlock)
      store_up_to(out + c, f_div(load_up_to(out + c, channels - c), sum), channels - c);
  }
}

// Signs of whole blocks of floats, after a scale if there is one.
template <bool kScaled>
void signs(const float* input, size_t begin, size_t end, const BoundEpilogue& f) {
  const size_t channels = size_t(f.channels), words = words_of(f) * (64 / kBlock);
  const float* in = input + begin * channels;
  Bits16* out = reinterpret_cast<Bits16*>(f.bits) + begin * words;
  for (size_t pixel = begin; pixel < end; pixel++, in += channels, out += words) {
    const auto sign = [&](size_t c) {
      F32x16 x = f_load(in + c);
      if (kScaled) x = f_fma(x, f_load(f.scale + c), f_load(f.bias + c));
      return uint64_t(f_less(x, f_zero()));
    };
    size_t c = 0;
    for (; c + 64 <= channels; c += 64) {  // whole words at once
      const uint64_t word = sign(c) | sign(c + kBlock) << 16 | sign(c + 2 * kBlock) << 32 | sign(c + 3 * kBlock) << 48;
      __builtin_memcpy(out + c / kBlock, &word, sizeof(word));
    }
    for (; c < channels; c += kBlock) out[c / kBlock] = Bits16(sign(c));
  }
}

void elementwise(const void* input, bool from_bits, size_t begin, size_t end, const BoundEpilogue& f) {
  if (!from_bits && f.kind == EpilogueKind::kSign) {
    const float* in = static_cast<const float*>(input);
    return f.scale ? signs<true>(in, begin, end, f) : signs<false>(in, begin, end, f);
  }
  constexpr int kPixels = 8;  // that go through the steps together
  for (size_t pixel = begin; pixel < end; pixel += kPixels) {
    const int pixels = end - pixel < kPixels ? int(end - pixel) : kPixels;
    for (int c = 0; c < f.channels; c += kBlock) {
      F32x16 y[kPixels];
      for (int i = 0; i < pixels; i++) {
        const size_t at = pixel + size_t(i);
        const uint64_t* row = static_cast<const uint64_t*>(input) + at * words_of(f);
        y[i] = from_bits
                   ? plus_minus_one(reinterpret_cast<const Bits16*>(row)[c / kBlock])
                   : load_up_to(static_cast<const float*>(input) + at * size_t(f.channels) + size_t(c), f.channels - c);
      }
      run_steps(f, pixel, c, y, pixels);
    }
  }
}

}  // namespace
}  // namespace bitedge
