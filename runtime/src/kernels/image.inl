// Integer convolution of bytes with ±1 weights. Included by the file of each instruction set, after epilogue.inl. The
// file defines kImagePixels and kImageBlocks, the register tile, and
//   I32x16 dot(I32x16 acc, uint32_t four, const int8_t* weights): acc[i] += Σ byte j of four · weights[4·i + j].
namespace bitedge {
namespace {

template <int kPixels, int kBlocks, EpilogueKind kKind>
void image_tile(const ImageConv& c, int32_t pixel, int32_t block) {
  I32x16 acc[kPixels][kBlocks];
  BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) {
    BITEDGE_UNROLL for (int j = 0; j < kBlocks; j++) acc[i][j] = i_zero();
  }
  const uint8_t* in[kPixels];
  BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) in[i] = c.map + c.region.origin[pixel + i];
  const size_t depth = size_t(c.steps) * kBlock * 4;
  const int8_t* w = c.weights + size_t(block) * depth;
  for (int32_t s = 0; s < c.steps; s++, w += kBlock * 4) {
    BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) {
      uint32_t four;
      __builtin_memcpy(&four, in[i] + c.region.step[s], sizeof four);
      BITEDGE_UNROLL for (int j = 0; j < kBlocks; j++) acc[i][j] = dot(acc[i][j], four, w + size_t(j) * depth);
    }
  }
  BITEDGE_UNROLL for (int j = 0; j < kBlocks; j++) {
    EpilogueTile<kPixels, kKind> tile(c.epilogue, size_t(pixel), (block + j) * kBlock);
    BITEDGE_UNROLL for (int i = 0; i < kPixels; i++) {
      const int32_t* base = c.base + (c.row ? c.row[pixel + i] : 0) + (block + j) * kBlock;
      tile.put(size_t(i), i_add(i_load(base), i_twice(acc[i][j])));
    }
    tile.done();
  }
}

template <int kBlocks, EpilogueKind kKind>
void image_blocks(const ImageConv& c, int32_t* block) {
  for (; *block + kBlocks <= c.region.block_end; *block += kBlocks) {
    int32_t pixel = c.region.pixel_begin;
    for (; pixel + kImagePixels <= c.region.pixel_end; pixel += kImagePixels) {
      image_tile<kImagePixels, kBlocks, kKind>(c, pixel, *block);
    }
    for (; pixel < c.region.pixel_end; pixel++) image_tile<1, kBlocks, kKind>(c, pixel, *block);
  }
}

template <EpilogueKind kKind>
void image_conv(const ImageConv& c) {
  int32_t block = c.region.block_begin;
  image_blocks<kImageBlocks, kKind>(c, &block);
  if constexpr (kImageBlocks > 1) image_blocks<1, kKind>(c, &block);
}

void run_image_conv(const ImageConv& c) {
  c.epilogue.kind == EpilogueKind::kThreshold ? image_conv<EpilogueKind::kThreshold>(c) : image_conv<EpilogueKind::kSteps>(c);
}

}  // namespace
}  // namespace bitedge
