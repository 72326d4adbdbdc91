// The operators without weights, sixteen channels at a time, in exactly the order of scalar.cpp. Included by the file
// of each instruction set, after its vector header and epilogue.inl.
namespace bitedge {
namespace {

// The taps of one output pixel that lie inside the image, along one axis.
struct Span {
  int32_t begin, end;
};
inline Span inside(int64_t start, int32_t kernel, int32_t dilation, int32_t size) {
  Span s = {0, kernel};
  while (s.begin < s.end && start + int64_t(s.begin) * dilation < 0) s.begin++;
  while (s.end > s.begin && start + int64_t(s.end - 1) * dilation >= size) s.end--;
  return s;
}

// Calls step(channel, lanes, first pixel, rows, columns) for each output pixel and block of channels.
template <int kLanes, typename Step>
inline void for_windows(const Pool2d& p, const Step& step) {
  for (int32_t y = p.row_begin; y < p.row_end; y++) {
    const int64_t top = int64_t(y) * p.stride_h - p.pad_top;
    const Span rows = inside(top, p.kernel_h, p.dilation_h, p.in_h);
    for (int32_t x = 0; x < p.out_w; x++) {
      const int64_t left = int64_t(x) * p.stride_w - p.pad_left;
      const Span columns = inside(left, p.kernel_w, p.dilation_w, p.in_w);
      const int64_t first =
          (top + int64_t(rows.begin) * p.dilation_h) * p.in_w + left + int64_t(columns.begin) * p.dilation_w;
      for (int32_t c = 0; c < p.lanes; c += kLanes) {
        step(size_t(first) * size_t(p.in_pitch) + size_t(c),
             (size_t(y) * size_t(p.out_w) + size_t(x)) * size_t(p.out_pitch) + size_t(c), p.lanes - c,
             rows.end - rows.begin, columns.end - columns.begin);
      }
    }
  }
}

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
  for_windows<kBlock>(p, [&](size_t from, size_t to, int n, int32_t rows, int32_t columns) {
    const float* in = static_cast<const float*>(p.input) + from;
    float* out = static_cast<float*>(p.output) + to;
    F32x16 best = f_set(-__builtin_inff());
    for (int32_t i = 0; i < rows; i++) {
      for (int32_t j = 0; j < columns; j++) {
        best = f_greater_of(load_up_to(in + size_t(i) * down + size_t(j) * right, n), best);
      }
    }
    store_up_to(out, f_add(best, f_zero()), n);
  });
}

void avg_pool(const Pool2d& p) {
  const size_t down = row_pitch(p), right = column_pitch(p);
  for_windows<kBlock>(p, [&](size_t from, size_t to, int n, int32_t rows, int32_t columns) {
    F32x16 total = f_zero();
    const float* in = static_cast<const float*>(p.input) + from;
    if (rows == 2 && columns == 2 && n >= kBlock) {  // the window of the networks' shortcuts, without tests
      BITEDGE_UNROLL for (size_t i = 0; i < 2; i++) {
        BITEDGE_UNROLL for (size_t j = 0; j < 2; j++) total = f_add(total, f_load(in + i * down + j * right));
      }
    } else {
      for (int32_t i = 0; i < rows; i++) {
        for (int32_t j = 0; j < columns; j++) total = f_add(total, load_up_to(in + i * down + j * right, n));
      }
    }
    const int32_t count = p.count_include_pad ? p.kernel_h * p.kernel_w : rows * columns;
    const bool power_of_two = (count & (count - 1)) == 0;  // then the product is the quotient
    const F32x16 mean = power_of_two ? f_mul(total, f_set(1 / float(count))) : f_div(total, f_set(float(count)));
    store_up_to(static_cast<float*>(p.output) + to, mean, n);
  });
}

// The larger of two signs has bit 0 if either has (bit 1 is -1): and. The smaller one: or, which is and of complements.
void max_pool_bits(const Pool2d& p) {
  const size_t down = row_pitch(p), right = column_pitch(p);
  for_windows<1>(p, [&](size_t from, size_t to, int n, int32_t rows, int32_t columns) {
    const uint64_t flip = p.minimum ? p.minimum[p.lanes - n] : 0;
    uint64_t both = ~uint64_t(0);
    const uint64_t* in = static_cast<const uint64_t*>(p.input) + from;
    for (int32_t i = 0; i < rows; i++) {
      for (int32_t j = 0; j < columns; j++) both &= in[i * down + j * right] ^ flip;
    }
    static_cast<uint64_t*>(p.output)[to] = both ^ flip;
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
    for (size_t c = 0; c < channels; c += kBlock) {
      F32x16 x = f_load(in + c);
      if (kScaled) x = f_fma(x, f_load(f.scale + c), f_load(f.bias + c));
      out[c / kBlock] = Bits16(f_less(x, f_zero()));
    }
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
        y[i] = from_bits ? plus_minus_one(reinterpret_cast<const Bits16*>(row)[c / kBlock])
                         : load_up_to(static_cast<const float*>(input) + at * size_t(f.channels) + size_t(c),
                                      f.channels - c);
      }
      run_steps(f, pixel, c, y, pixels);
    }
  }
}

}  // namespace
}  // namespace bitedge
