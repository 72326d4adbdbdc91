// Windows in an image that is not padded, and float convolution in groups of few channels: see LaneConv. Included by the
// file of each instruction set, after its vector header and epilogue.inl. The file defines kFloatPixels.
namespace bitedge {
namespace {

// The taps of one output pixel that lie inside the image, along one axis.
struct Span {
  int32_t begin, end;
  int32_t size() const { return end - begin; }
};
inline Span inside(int64_t start, int32_t kernel, int32_t dilation, int32_t size) {
  Span s = {0, kernel};
  while (s.begin < s.end && start + int64_t(s.begin) * dilation < 0) s.begin++;
  while (s.end > s.begin && start + int64_t(s.end - 1) * dilation >= size) s.end--;
  return s;
}

// The window of one output pixel.
struct Place {
  int64_t top, left;  // of the first tap, inside of the image or not
  Span rows, columns;
  size_t first;  // pixel of the first tap that is inside
  size_t pixel;  // of the output
};

inline Place place_of(const Windows& w, int32_t y, int32_t x) {
  Place p;
  p.top = int64_t(y) * w.stride_h - w.pad_top;
  p.left = int64_t(x) * w.stride_w - w.pad_left;
  p.rows = inside(p.top, w.kernel_h, w.dilation_h, w.in_h);
  p.columns = inside(p.left, w.kernel_w, w.dilation_w, w.in_w);
  p.first = size_t((p.top + int64_t(p.rows.begin) * w.dilation_h) * w.in_w + p.left +
                   int64_t(p.columns.begin) * w.dilation_w);
  p.pixel = size_t(y) * size_t(w.out_w) + size_t(x);
  return p;
}

template <typename Step>
inline void for_windows(const Windows& w, const Step& step) {
  for (int32_t y = w.row_begin; y < w.row_end; y++) {
    for (int32_t x = 0; x < w.out_w; x++) step(place_of(w, y, x));
  }
}

// kPixels outputs from `at` on, whose windows have the same taps: all of a row, or there is one pixel.
template <int kPixels>
void lane_tile(const LaneConv& c, const Place& at, int32_t block) {
  const size_t unit = size_t(c.depth) * size_t(c.lanes), next = size_t(c.stride_w) * unit;
  F32x16 acc[kPixels];
  BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) acc[i] = f_zero();
  const size_t row = size_t(c.kernel_w) * size_t(c.depth), begin = size_t(at.columns.begin) * size_t(c.depth);
  const size_t first = size_t(at.rows.begin) * row + begin;
  const float* w = c.weights + (size_t(block) * size_t(c.kernel_h) * row + first) * kBlock;
  const int32_t* step = c.step + first;
  const bool any = at.rows.size() > 0 && at.columns.size() > 0;  // padding alone has no tap, and `step` ends here
  const float* in = any ? c.map + at.first * unit + size_t(block) * kBlock - *step : c.map;
  // One run of steps for all rows, where the columns are whole; else one for each row.
  const bool whole = at.columns.size() == c.kernel_w;
  const size_t count = size_t(at.columns.size()) * size_t(c.depth) * size_t(whole ? at.rows.size() : 1);
  for (int32_t y = 0; any && y < (whole ? 1 : at.rows.size()); y++, step += row, w += row * kBlock) {
    for (size_t s = 0; s < count; s++) {
      const F32x16 weight = f_load(w + s * kBlock);
      const float* from = in + step[s];
      BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) acc[i] = f_fma(f_load(from + size_t(i) * next), weight, acc[i]);
    }
  }
  run_steps(c.epilogue, at.pixel, block * kBlock, acc, kPixels);
}

template <int kPixels>
void lane_rest(const LaneConv& c, const Place& at, int32_t block, int32_t pixels) {
  if (pixels == kPixels) return lane_tile<kPixels>(c, at, block);
  if constexpr (kPixels > 1) lane_rest<kPixels - 1>(c, at, block, pixels);
}

void run_lane_conv(const LaneConv& c) {
  const int32_t blocks = (c.epilogue.channels + kBlock - 1) / kBlock;
  const int64_t reach = int64_t(c.kernel_w - 1) * c.dilation_w;
  for (int32_t y = c.row_begin; y < c.row_end; y++) {
    for (int32_t x = 0, pixels; x < c.out_w; x += pixels) {
      const Place at = place_of(c, y, x);
      pixels = 1;
      if (at.columns.size() == c.kernel_w) {
        const int64_t whole = (c.in_w - 1 - reach - at.left) / c.stride_w + 1;  // windows from here on that lie inside
        pixels = int32_t(whole < kFloatPixels ? whole : kFloatPixels);
        if (pixels > c.out_w - x) pixels = c.out_w - x;
      }
      for (int32_t block = 0; block < blocks; block++) lane_rest<kFloatPixels>(c, at, block, pixels);
    }
  }
}

void spread_lanes(const Spread& s) {
  for (size_t pixel = 0; pixel < s.pixels; pixel++) {
    const float* from = s.from + pixel * size_t(s.channels);
    float* to = s.to + pixel * size_t(s.blocks) * kBlock;
    for (int32_t b = 0; b < s.blocks; b++) {
      const F32x16 x = load_up_to(from + s.first[b], s.channels - s.first[b]);
      f_store(to + b * kBlock, f_permute(x, s.index + b * kBlock));
    }
  }
}

}  // namespace
}  // namespace bitedge
