// Float convolution, sixteen channels per lane vector. Included by the file of each instruction set, after its vector
// header and finish.inl. The file defines kFloatPixels and kFloatBlocks, the register tile, and kFloatStream, the
// number of blocks that a matrix times a vector keeps in flight.
namespace bitedge {
namespace {

// kPixels pixels from `pixel` on by kBlocks blocks from `block` on.
template <int kPixels, int kBlocks, Ending kEnding>
void float_tile(const FloatConv& c, int32_t pixel, int32_t block) {
  F16 acc[kPixels][kBlocks];
  BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) {
    BITEDGE_UNROLL for (int j = 0; j < kBlocks; j++) acc[i][j] = f_zero();
  }
  const size_t depth = size_t(c.steps) * size_t(c.run) * kBlock;
  const float* w = c.weights + size_t(block) * depth;
  for (int32_t s = 0; s < c.steps; s++) {
    const float* in[kPixels];
    BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) in[i] = c.map + c.region.origin[pixel + i] + c.region.step[s];
    for (int32_t k = 0; k < c.run; k++, w += kBlock) {
      F16 weights[kBlocks];
      BITEDGE_UNROLL for (int j = 0; j < kBlocks; j++) weights[j] = f_load(w + size_t(j) * depth);
      BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) {
        const F16 x = f_set(in[i][k]);
        BITEDGE_UNROLL for (int j = 0; j < kBlocks; j++) acc[i][j] = f_fma(x, weights[j], acc[i][j]);
      }
    }
  }
  BITEDGE_UNROLL for (int j = 0; j < kBlocks; j++) {
    const Tail<kEnding> tail(c.finish, size_t(pixel), (block + j) * kBlock);
    BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) tail.put(size_t(i), acc[i][j]);
  }
}

// The pixels that do not fill a tile.
template <int kPixels, int kBlocks, Ending kEnding>
void float_rest(const FloatConv& c, int32_t pixel, int32_t block, int32_t pixels) {
  if (pixels == kPixels) return float_tile<kPixels, kBlocks, kEnding>(c, pixel, block);
  if constexpr (kPixels > 1) float_rest<kPixels - 1, kBlocks, kEnding>(c, pixel, block, pixels);
}

template <int kPixels, int kBlocks, Ending kEnding>
void float_blocks(const FloatConv& c, int32_t* block) {
  for (; *block + kBlocks <= c.region.block_end; *block += kBlocks) {
    int32_t pixel = c.region.pixel_begin;
    for (; pixel + kPixels <= c.region.pixel_end; pixel += kPixels)
      float_tile<kPixels, kBlocks, kEnding>(c, pixel, *block);
    if (pixel < c.region.pixel_end) float_rest<kPixels, kBlocks, kEnding>(c, pixel, *block, c.region.pixel_end - pixel);
  }
}

template <Ending kEnding>
void float_conv(const FloatConv& c) {
  int32_t block = c.region.block_begin;
  if (c.region.pixel_end - c.region.pixel_begin == 1) float_blocks<1, kFloatStream, kEnding>(c, &block);
  float_blocks<kFloatPixels, kFloatBlocks, kEnding>(c, &block);
  if constexpr (kFloatBlocks > 2) float_blocks<kFloatPixels, 2, kEnding>(c, &block);
  if constexpr (kFloatBlocks > 1) float_blocks<kFloatPixels, 1, kEnding>(c, &block);
}

void run_float_conv(const FloatConv& c) {
  ending_of(c.finish) == Ending::kResidual ? float_conv<Ending::kResidual>(c) : float_conv<Ending::kAny>(c);
}

}  // namespace
}  // namespace bitedge
