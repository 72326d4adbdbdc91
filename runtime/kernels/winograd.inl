// Convolution of an image with float weights by Winograd's method over six points, 0, 1, -1, 1/2, -2 and infinity.
// Included by the file of each instruction set, after conv.inl.
//
// A kernel of k by k with stride s is s² kernels of ceil(k / s) taps with stride 1, one per phase of the image: phases
// and channels together are the depth. Along each axis r taps and m = 7 - r outputs meet in six products instead of
// m·r, so 7x7 with stride 2 takes 48 products per output and channel instead of 147, and 11x11 with stride 4 takes 108
// instead of 363. Pixels are integers, so the transform of the image is exact, and the answer is as close to the real
// sum as that of a direct convolution in float32 (docs/performance.md has the measurement).
namespace bitedge {
namespace {

constexpr int kPoints = 6, kPlanes = kPoints * kPoints;

inline F16 twice(F16 x) { return f_add(x, x); }

// Bᵀ·d, scaled to small integers; row 3 negated. The weights carry the inverse factors.
inline __attribute__((always_inline)) void to_points(const F16 (&d)[kPoints], F16 (&out)[kPoints]) {
  const F16 a = f_sub(d[3], d[1]), b = f_sub(d[4], d[2]), three = f_set(3.0f), two = f_set(2.0f);
  out[0] = f_fma(three, a, twice(f_add(f_sub(d[0], d[2]), b)));
  out[1] = f_fma(three, f_add(d[2], d[3]), twice(f_add(a, b)));
  out[2] = f_fma(three, f_sub(d[2], d[3]), twice(f_sub(a, b)));
  out[3] = f_fma(two, a, b);
  out[4] = f_sub(twice(b), a);
  out[5] = f_fma(three, b, twice(f_sub(f_sub(d[5], d[3]), a)));
}

// Aᵀ·m: kOut outputs from six points.
template <int kOut>
inline __attribute__((always_inline)) void from_points(const F16 (&m)[kPoints], F16 (&out)[kOut]) {
  const F16 sum = f_add(m[1], m[2]), difference = f_sub(m[1], m[2]);
  out[0] = f_add(f_add(m[0], sum), f_add(m[3], m[4]));
  out[1] = f_fma(f_set(-2.0f), m[4], f_fma(f_set(0.5f), m[3], difference));
  out[2] = f_fma(f_set(4.0f), m[4], f_fma(f_set(0.25f), m[3], sum));
  if constexpr (kOut == 3) out[2] = f_add(out[2], m[5]);
  if constexpr (kOut == 4) out[3] = f_add(f_fma(f_set(-8.0f), m[4], f_fma(f_set(0.125f), m[3], difference)), m[5]);
}

// The image of one tile, sixteen lanes of the depth from `lane` on, to v[plane][lanes]: `pitch` floats between planes.
inline void transform_image(const StemConv& c, int32_t tile, int32_t lane, float* v, size_t pitch) {
  const size_t row = size_t(tile / c.tiles_w) * size_t(c.outputs),
               column = size_t(tile % c.tiles_w) * size_t(c.outputs);
  const F16 center = f_load(c.center + lane);
  F16 half[kPoints][kPoints];
  for (int i = 0; i < kPoints; i++) {
    const uint8_t* from = c.map + ((row + size_t(i)) * size_t(c.map_w) + column) * size_t(c.lanes) + lane;
    F16 d[kPoints];
    BITEDGE_UNROLL for (int j = 0; j < kPoints; j++) d[j] = f_sub(f_from_bytes(from + j * c.lanes), center);
    to_points(d, half[i]);
  }
  for (int j = 0; j < kPoints; j++) {
    F16 d[kPoints], out[kPoints];
    BITEDGE_UNROLL for (int i = 0; i < kPoints; i++) d[i] = half[i][j];
    to_points(d, out);
    BITEDGE_UNROLL for (int i = 0; i < kPoints; i++) f_store(v + size_t(i * kPoints + j) * pitch, out[i]);
  }
}

// One plane: kTiles tiles by kBlocks blocks. `v` has `lanes` floats per tile, `u` blocks of [depth][16], `m` blocks per
// tile.
template <int kTiles, int kBlocks>
inline void multiply(const StemConv& c, const float* v, const float* u, float* m) {
  F16 acc[kTiles][kBlocks];
  BITEDGE_UNROLL for (int i = 0; i < kTiles; i++) {
    BITEDGE_UNROLL for (int j = 0; j < kBlocks; j++) acc[i][j] = f_zero();
  }
  const size_t block = size_t(c.depth) * kBlock;
  for (int32_t k = 0; k < c.depth; k++, u += kBlock) {
    F16 weights[kBlocks];
    BITEDGE_UNROLL for (int j = 0; j < kBlocks; j++) weights[j] = f_load(u + size_t(j) * block);
    BITEDGE_UNROLL for (int i = 0; i < kTiles; i++) {
      const F16 x = f_set(v[size_t(i) * size_t(c.lanes) + size_t(k)]);
      BITEDGE_UNROLL for (int j = 0; j < kBlocks; j++) acc[i][j] = f_fma(x, weights[j], acc[i][j]);
    }
  }
  BITEDGE_UNROLL for (int i = 0; i < kTiles; i++) {
    BITEDGE_UNROLL for (int j = 0; j < kBlocks; j++) {
      f_store(m + (size_t(i) * size_t(c.blocks) + size_t(j)) * kPoints * kBlock, acc[i][j]);
    }
  }
}

template <int kTiles>
inline void multiply_blocks(const StemConv& c, const float* v, const float* u, float* m) {
  const size_t from = size_t(c.depth) * kBlock, to = size_t(kPoints) * kBlock;
  int32_t block = 0;
  for (; block + kFloatBlocks <= c.blocks; block += kFloatBlocks) {
    multiply<kTiles, kFloatBlocks>(c, v, u + size_t(block) * from, m + size_t(block) * to);
  }
  if constexpr (kFloatBlocks > 2) {
    for (; block + 2 <= c.blocks; block += 2)
      multiply<kTiles, 2>(c, v, u + size_t(block) * from, m + size_t(block) * to);
  }
  for (; block < c.blocks; block++) multiply<kTiles, 1>(c, v, u + size_t(block) * from, m + size_t(block) * to);
}

// The tiles that do not fill a register tile.
template <int kTiles>
inline void multiply_rest(const StemConv& c, const float* v, const float* u, float* m, int32_t tiles) {
  if (tiles == kTiles) return multiply_blocks<kTiles>(c, v, u, m);
  if constexpr (kTiles > 1) multiply_rest<kTiles - 1>(c, v, u, m, tiles);
}

// From half-way, [6 rows of points][kOut columns], to the pixels of one tile and block.
template <int kOut, Ending kEnding>
inline void transform_outputs(const StemConv& c, int32_t tile, int32_t block, const float* half) {
  const int32_t top = tile / c.tiles_w * kOut, left = tile % c.tiles_w * kOut;
  const int32_t rows = c.out_h - top < kOut ? c.out_h - top : kOut,
                columns = c.out_w - left < kOut ? c.out_w - left : kOut;
  const Tail<kEnding> tail(c.finish, size_t(top - c.first_row) * size_t(c.out_w) + size_t(left), block * kBlock);
  for (int j = 0; j < columns; j++) {
    F16 d[kPoints], out[kOut];
    BITEDGE_UNROLL for (int i = 0; i < kPoints; i++) d[i] = f_load(half + (i * kOut + j) * kBlock);
    from_points<kOut>(d, out);
    BITEDGE_UNROLL for (int i = 0; i < kOut; i++) {
      if (i >= rows) break;
      const size_t pixel = size_t(top + i) * size_t(c.out_w) + size_t(left + j);
      const F16 bias = f_load(c.bias + c.row[pixel] + block * kBlock);
      tail.put(size_t(i) * size_t(c.out_w) + size_t(j), f_add(out[i], bias));
    }
  }
}

// Products of one row of points, m[tile][block][6 columns], are folded to half[tile][block][row][kOut] while they are
// in the first cache.
template <int kOut>
inline void fold_row(const float* m, int row, size_t count, float* half) {
  for (size_t k = 0; k < count; k++, m += kPoints * kBlock, half += kPoints * kOut * kBlock) {
    F16 d[kPoints], out[kOut];
    BITEDGE_UNROLL for (int j = 0; j < kPoints; j++) d[j] = f_load(m + j * kBlock);
    from_points<kOut>(d, out);
    BITEDGE_UNROLL for (int j = 0; j < kOut; j++) f_store(half + (row * kOut + j) * kBlock, out[j]);
  }
}

template <int kOut, Ending kEnding>
void stem_strip(const StemConv& c, int32_t tile, int32_t tiles, float* v, float* m, float* half) {
  const size_t pitch = size_t(kStemTiles) * size_t(c.lanes), tile_floats = size_t(c.blocks) * kPoints * kBlock;
  for (int32_t i = 0; i < tiles; i++) {
    for (int32_t lane = 0; lane < c.lanes; lane += kBlock) {
      transform_image(c, tile + i, lane, v + i * c.lanes + lane, pitch);
    }
  }
  for (int plane = 0; plane < kPlanes; plane++) {
    const float* u = c.weights + size_t(plane) * size_t(c.blocks) * size_t(c.depth) * kBlock;
    const float* from = v + size_t(plane) * pitch;
    float* to = m + size_t(plane % kPoints) * kBlock;
    int32_t i = 0;
    for (; i + kFloatPixels <= tiles; i += kFloatPixels) {
      multiply_blocks<kFloatPixels>(c, from + i * c.lanes, u, to + size_t(i) * tile_floats);
    }
    if (i < tiles) multiply_rest<kFloatPixels - 1>(c, from + i * c.lanes, u, to + size_t(i) * tile_floats, tiles - i);
    if (plane % kPoints == kPoints - 1) fold_row<kOut>(m, plane / kPoints, size_t(tiles) * size_t(c.blocks), half);
  }
  for (int32_t i = 0; i < tiles; i++) {
    for (int32_t block = 0; block < c.blocks; block++) {
      transform_outputs<kOut, kEnding>(c, tile + i, block,
                                       half + size_t(i * c.blocks + block) * kPoints * kOut * kBlock);
    }
  }
}

template <Ending kEnding>
void stem_conv(const StemConv& c) {
  float* v = c.scratch;
  float* m = v + size_t(kPlanes) * kStemTiles * size_t(c.lanes);
  float* half = m + size_t(kPoints) * kStemTiles * size_t(c.blocks) * kBlock;
  for (int32_t tile = c.tile_begin; tile < c.tile_end; tile += kStemTiles) {
    const int32_t tiles = c.tile_end - tile < kStemTiles ? c.tile_end - tile : kStemTiles;
    c.outputs == 3 ? stem_strip<3, kEnding>(c, tile, tiles, v, m, half)
                   : stem_strip<4, kEnding>(c, tile, tiles, v, m, half);
  }
}

void run_stem(const StemConv& c) {
  ending_of(c.finish) == Ending::kScale ? stem_conv<Ending::kScale>(c) : stem_conv<Ending::kAny>(c);
}

}  // namespace
}  // namespace bitedge
