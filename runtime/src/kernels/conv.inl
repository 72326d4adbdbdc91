// Float convolution, sixteen channels per lane vector. Included by the file of each instruction set, after its vector
// header and epilogue.inl. The file defines kFloatPixels and kFloatBlocks, the register tile, and kStreamBlocks, that of
// a matrix times a vector.
namespace bitedge {
namespace {

// kPixels pixels from `pixel` on by kBlocks blocks from `block` on. With all blocks side by side, the rows that a tile
// reads are far apart, so they are fetched ahead.
template <int kPixels, int kBlocks, EpilogueKind kKind, bool kSides>
void float_tile(const FloatConv& c, int32_t pixel, int32_t block) {
  F32x16 acc[kPixels][kBlocks];
  BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) {
    BITEDGE_UNROLL for (int j = 0; j < kBlocks; j++) acc[i][j] = f_zero();
  }
  constexpr size_t kAhead = 16;
  const size_t depth = size_t(c.steps) * size_t(c.run) * kBlock;
  const size_t row = kSides ? size_t(c.side) * kBlock : kBlock, next = kSides ? kBlock : depth;
  const float* w = c.weights + size_t(block) * next;
  for (int32_t s = 0; s < c.steps; s++) {
    const float* in[kPixels];
    BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) in[i] = c.map + c.region.origin[pixel + i] + c.region.step[s];
    for (int32_t k = 0; k < c.run; k++, w += row) {
      F32x16 weights[kBlocks];
      BITEDGE_UNROLL for (int j = 0; j < kBlocks; j++) {
        weights[j] = f_load(w + size_t(j) * next);
        if (kSides) __builtin_prefetch(w + kAhead * row + size_t(j) * next, 0, 2);
      }
      BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) {
        const F32x16 x = f_set(in[i][k]);
        BITEDGE_UNROLL for (int j = 0; j < kBlocks; j++) acc[i][j] = f_fma(x, weights[j], acc[i][j]);
      }
    }
  }
  BITEDGE_UNROLL for (int j = 0; j < kBlocks; j++) {
    EpilogueTile<kPixels, kKind> tile(c.epilogue, size_t(pixel), (block + j) * kBlock);
    BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) tile.put(size_t(i), acc[i][j]);
    tile.done();
  }
}

// The pixels that do not fill a tile.
template <int kPixels, int kBlocks, EpilogueKind kKind, bool kSides>
void float_rest(const FloatConv& c, int32_t pixel, int32_t block, int32_t pixels) {
  if (pixels == kPixels) return float_tile<kPixels, kBlocks, kKind, kSides>(c, pixel, block);
  if constexpr (kPixels > 1) float_rest<kPixels - 1, kBlocks, kKind, kSides>(c, pixel, block, pixels);
}

template <int kBlocks, EpilogueKind kKind, bool kSides>
void float_blocks(const FloatConv& c, int32_t* block) {
  constexpr int kPixels = kFloatPixels;
  for (; *block + kBlocks <= c.region.block_end; *block += kBlocks) {
    int32_t pixel = c.region.pixel_begin;
    for (; pixel + kPixels <= c.region.pixel_end; pixel += kPixels)
      float_tile<kPixels, kBlocks, kKind, kSides>(c, pixel, *block);
    if (pixel < c.region.pixel_end)
      float_rest<kPixels, kBlocks, kKind, kSides>(c, pixel, *block, c.region.pixel_end - pixel);
  }
}

template <EpilogueKind kKind, bool kSides>
void float_conv(const FloatConv& c) {
  int32_t block = c.region.block_begin;
  float_blocks<kFloatBlocks, kKind, kSides>(c, &block);
  if constexpr (kFloatBlocks > 2) float_blocks<2, kKind, kSides>(c, &block);
  if constexpr (kFloatBlocks > 1) float_blocks<1, kKind, kSides>(c, &block);
}

void run_float_conv(const FloatConv& c) {
  if (c.side > 1) return float_conv<EpilogueKind::kSteps, true>(c);
  c.epilogue.kind == EpilogueKind::kResidual ? float_conv<EpilogueKind::kResidual, false>(c)
                                           : float_conv<EpilogueKind::kSteps, false>(c);
}

// kRows rows of the list from `i` on. Those that follow are fetched by hand: the hardware does not foresee which ones
// are left out. They go to the second cache, since the first holds no more than this.
template <int kRows, int kBlocks>
void stream_tile(const FloatStream& s, int32_t i, int32_t block) {
  const size_t pitch = size_t(s.blocks) * kBlock;
  const float* w = s.weights + size_t(block) * kBlock;
  float* sums = s.sums + size_t(block) * kBlock;
  F32x16 acc[kBlocks];
  BITEDGE_UNROLL for (int j = 0; j < kBlocks; j++) acc[j] = f_load(sums + j * kBlock);
  BITEDGE_UNROLL for (int r = 0; r < kRows; r++) {
    const float* row = w + size_t(s.row[i + r]) * pitch;
    const float* next = w + size_t(s.row[i + r + FloatStream::kRows]) * pitch;
    BITEDGE_UNROLL for (int j = 0; j < kBlocks; j++) __builtin_prefetch(next + j * kBlock, 0, 2);
    const F32x16 x = f_set(s.value[i + r]);
    BITEDGE_UNROLL for (int j = 0; j < kBlocks; j++) acc[j] = f_fma(x, f_load(row + j * kBlock), acc[j]);
  }
  BITEDGE_UNROLL for (int j = 0; j < kBlocks; j++) f_store(sums + j * kBlock, acc[j]);
}

// All blocks from `block` on, those that do not fill a tile by halves of it. There are fours of them.
template <int kRows, int kBlocks>
void stream_rows(const FloatStream& s, int32_t i, int32_t block) {
  for (; block + kBlocks <= s.block_end; block += kBlocks) stream_tile<kRows, kBlocks>(s, i, block);
  if constexpr (kBlocks > 4) stream_rows<kRows, kBlocks / 2>(s, i, block);
}

void run_float_stream(const FloatStream& s) {
  for (int32_t block = s.block_begin; block < s.block_end; block++) f_store(s.sums + block * kBlock, f_zero());
  int32_t i = 0;
  for (; i + FloatStream::kRows <= s.count; i += FloatStream::kRows) {
    stream_rows<FloatStream::kRows, kStreamBlocks>(s, i, s.block_begin);
  }
  for (; i < s.count; i++) stream_rows<1, kStreamBlocks>(s, i, s.block_begin);
  for (int32_t block = s.block_begin; block < s.block_end && block * kBlock < s.epilogue.channels; block++) {
    F32x16 sums = f_load(s.sums + block * kBlock);
    run_steps(s.epilogue, 0, block * kBlock, &sums, 1);
  }
}

}  // namespace
}  // namespace bitedge
