// Convolution of an image with float weights by Winograd's method: four by four outputs at a time, or five by five.
// Included by the file of each instruction set, after epilogue.inl. The file defines kStemSums, how many sums of
// sixteen lanes it keeps in registers.
//
// A kernel of k by k with stride s is s² kernels of ceil(k / s) taps with stride 1, one per phase of the image: phases
// and channels together are the depth. Along each axis r taps and n outputs meet in r + n - 1 products, at as many
// points, instead of n·r. So 7x7 with stride 2 takes 37 products per output and channel instead of 147, and 11x11 with
// stride 4 takes 94 instead of 363 (32 and 87 where a phase lacks the last tap, see multiply()). Pixels are integers,
// so the transform of the image is exact, and the answer is nearly as close to the real sum as that of a direct
// convolution in float32 (docs/performance.md has the measurement).
//
// Six points, for four outputs and three taps: 0, 1, -1, 1/2, -2 and infinity. Seven, for one output or one tap more:
// 0, 1, -1, 2, -2, 1/2 and infinity.
namespace bitedge {
namespace {

inline F32x16 twice(F32x16 x) { return f_add(x, x); }

// Bᵀ·d, scaled to small integers. The weights carry the inverse factors.
inline __attribute__((always_inline)) void to_points(const F32x16 (&d)[6], F32x16 (&out)[6]) {
  const F32x16 a = f_sub(d[3], d[1]), b = f_sub(d[4], d[2]), three = f_set(3.0f), two = f_set(2.0f);
  out[0] = f_fma(three, a, twice(f_add(f_sub(d[0], d[2]), b)));
  out[1] = f_fma(three, f_add(d[2], d[3]), twice(f_add(a, b)));
  out[2] = f_fma(three, f_sub(d[2], d[3]), twice(f_sub(a, b)));
  out[3] = f_fma(two, a, b);
  out[4] = f_sub(twice(b), a);
  out[5] = f_fma(three, b, twice(f_sub(f_sub(d[5], d[3]), a)));
}

// First times 1 - 2x, which has the root 1/2: what is left are the points 0, 1, -1, 2, -2 and infinity.
inline __attribute__((always_inline)) void to_points(const F32x16 (&d)[7], F32x16 (&out)[7]) {
  const F32x16 two = f_set(2.0f), four = f_set(-4.0f);
  F32x16 g[6];
  BITEDGE_UNROLL for (int i = 0; i < 6; i++) g[i] = f_fma(f_set(-2.0f), d[i + 1], d[i]);
  const F32x16 even = f_fma(four, g[2], g[4]), odd = f_fma(four, g[1], g[3]);
  const F32x16 near_even = f_sub(g[4], g[2]), near_odd = f_sub(g[3], g[1]);
  out[0] = f_fma(four, f_sub(g[2], g[0]), near_even);
  out[1] = f_add(even, odd);
  out[2] = f_sub(even, odd);
  out[3] = f_fma(two, near_odd, near_even);
  out[4] = f_fma(f_set(-2.0f), near_odd, near_even);
  out[5] = f_fma(four, f_sub(d[3], d[1]), f_sub(d[5], d[3]));
  out[6] = f_fma(four, near_odd, f_sub(g[5], g[3]));
}

// The transform of an image that is 1 everywhere is this at the point 1, squared, and zero at all others.
constexpr float kOnes = 6.0f;

// Aᵀ·m: the outputs from the points.
inline __attribute__((always_inline)) void from_points(const F32x16 (&m)[6], F32x16 (&out)[4]) {
  const F32x16 sum = f_add(m[1], m[2]), difference = f_sub(m[1], m[2]);
  out[0] = f_add(f_add(m[0], sum), f_add(m[3], m[4]));
  out[1] = f_fma(f_set(-2.0f), m[4], f_fma(f_set(0.5f), m[3], difference));
  out[2] = f_fma(f_set(4.0f), m[4], f_fma(f_set(0.25f), m[3], sum));
  out[3] = f_add(f_fma(f_set(-8.0f), m[4], f_fma(f_set(0.125f), m[3], difference)), m[5]);
}

template <int kOut>
inline __attribute__((always_inline)) void from_points(const F32x16 (&m)[7], F32x16 (&out)[kOut]) {
  const F32x16 sum = f_add(m[1], m[2]), difference = f_sub(m[1], m[2]);
  const F32x16 far_sum = f_add(m[3], m[4]), far_difference = f_sub(m[3], m[4]);
  out[0] = f_add(f_add(m[0], m[5]), f_add(sum, far_sum));
  out[1] = f_fma(f_set(2.0f), far_difference, f_fma(f_set(0.5f), m[5], difference));
  out[2] = f_fma(f_set(4.0f), far_sum, f_fma(f_set(0.25f), m[5], sum));
  out[3] = f_fma(f_set(8.0f), far_difference, f_fma(f_set(0.125f), m[5], difference));
  if constexpr (kOut == 5) out[4] = f_fma(f_set(16.0f), far_sum, f_fma(f_set(0.0625f), m[5], sum));
  out[kOut - 1] = f_add(out[kOut - 1], m[6]);
}

// The image of one tile, sixteen lanes of the depth from `lane` on, to v[row of points][tile][lanes / 16][column][16]:
// `pitch` floats between rows.
template <int kPoints, int kOut>
inline void transform_image(const StemConv& c, int32_t tile, int32_t lane, float* v, size_t pitch) {
  const size_t row = size_t(tile / c.tiles_w) * kOut, column = size_t(tile % c.tiles_w) * kOut;
  F32x16 half[kPoints][kPoints];
  for (int i = 0; i < kPoints; i++) {
    const uint8_t* from =
        c.map + ((row + size_t(i)) * size_t(c.layout->map_w) + column) * size_t(c.layout->lanes) + lane;
    F32x16 d[kPoints];
    BITEDGE_UNROLL for (int j = 0; j < kPoints; j++) d[j] = f_from_bytes(from + j * c.layout->lanes);
    to_points(d, half[i]);
  }
  for (int j = 0; j < kPoints; j++) {
    F32x16 d[kPoints], out[kPoints];
    BITEDGE_UNROLL for (int i = 0; i < kPoints; i++) d[i] = half[i][j];
    to_points(d, out);
    if (j == 1) out[1] = f_fma(f_set(-kOnes * kOnes), f_load(c.layout->center + lane), out[1]);
    BITEDGE_UNROLL for (int i = 0; i < kPoints; i++) f_store(v + size_t(i) * pitch + j * kBlock, out[i]);
  }
}

// Adds the products of elements [k, end) of the depth at the first kUsed points of a row. `ahead` are weights of the
// next row: all together exceed the second cache.
template <int kUsed, int kPoints, int kTiles>
inline __attribute__((always_inline)) void add_products(const StemConv& c, int32_t k, int32_t end, const float* v,
                                                        const float* u, const float* ahead,
                                                        F32x16 (&acc)[kTiles][kPoints]) {
  const float* tile[kTiles];
  BITEDGE_UNROLL for (int i = 0; i < kTiles; i++) {
    tile[i] = v + size_t(i) * size_t(kPoints) * size_t(c.layout->lanes);
    __asm__("" : "+r"(tile[i]));  // one register each: as sums of `v` they would come from the stack, again and again
  }
  u += size_t(k) * kPoints * kBlock;
  for (; k < end; k++, u += kPoints * kBlock) {
    const size_t at = size_t(c.layout->element[k]);
    __builtin_prefetch(ahead + k * kBlock, 0, 2);
    BITEDGE_UNROLL for (int p = 0; p < kUsed; p++) {
      const F32x16 weights = f_load(u + p * kBlock);
      BITEDGE_UNROLL for (int i = 0; i < kTiles; i++) {
        acc[i][p] = f_fma(f_set(tile[i][at + size_t(p * kBlock)]), weights, acc[i][p]);
      }
    }
  }
}

// One row of points of a block for kTiles tiles, folded to half[tile][row][kOut] while they are in registers. `v` has
// [lanes / 16][kPoints][16] floats per tile, `u` [depth][kPoints][16]. Phases that lack the last tap have nothing at
// infinity, which is the last point, and in the `last` row of points nothing at all.
template <int kPoints, int kOut, int kTiles>
inline __attribute__((always_inline)) void multiply(const StemConv& c, bool last, const float* v, const float* u,
                                                    const float* ahead, float* half) {
  F32x16 acc[kTiles][kPoints];
  BITEDGE_UNROLL for (int i = 0; i < kTiles; i++) {
    BITEDGE_UNROLL for (int p = 0; p < kPoints; p++) acc[i][p] = f_zero();
  }
  add_products<kPoints>(c, 0, last ? c.layout->whole : c.layout->wide, v, u, ahead, acc);
  add_products<kPoints - 1>(c, c.layout->wide, last ? c.layout->wide + c.layout->high : c.layout->depth, v, u, ahead,
                            acc);
  BITEDGE_UNROLL for (int i = 0; i < kTiles; i++) {
    F32x16 out[kOut];
    from_points(acc[i], out);
    float* to = half + i * kPoints * kOut * kBlock;
    BITEDGE_UNROLL for (int o = 0; o < kOut; o++) f_store(to + o * kBlock, out[o]);
  }
}

// The tiles that do not fill a register tile.
template <int kPoints, int kOut, int kTiles>
inline void multiply_rest(const StemConv& c, bool last, int32_t tiles, const float* v, const float* u,
                          const float* ahead, float* half) {
  if (tiles == kTiles) return multiply<kPoints, kOut, kTiles>(c, last, v, u, ahead, half);
  if constexpr (kTiles > 1) multiply_rest<kPoints, kOut, kTiles - 1>(c, last, tiles, v, u, ahead, half);
}

template <int kPoints, int kOut>
void multiply_tiles(const StemConv& c, bool last, int32_t tiles, const float* v, const float* u, float* half) {
  constexpr int kTiles = kStemSums / kPoints;
  const size_t from = size_t(kPoints) * size_t(c.layout->lanes), to = size_t(kPoints) * kOut * kBlock;
  const size_t row = size_t(c.layout->depth) * kPoints * kBlock, share = row / size_t((tiles + kTiles - 1) / kTiles);
  const float* ahead = u + row;
  for (; tiles >= kTiles; tiles -= kTiles, v += kTiles * from, ahead += share, half += kTiles * to) {
    multiply<kPoints, kOut, kTiles>(c, last, v, u, ahead, half);
  }
  if (tiles > 0) multiply_rest<kPoints, kOut, kTiles>(c, last, tiles, v, u, ahead, half);
}

// From half-way, [rows of points][kOut columns], to the pixels of one tile and block.
template <int kPoints, int kOut, EpilogueKind kKind>
inline void transform_outputs(const StemConv& c, int32_t tile, int32_t block, const float* half) {
  const int32_t top = tile / c.tiles_w * kOut, left = tile % c.tiles_w * kOut;
  const int32_t rows = c.layout->out_h - top < kOut ? c.layout->out_h - top : kOut,
                columns = c.layout->out_w - left < kOut ? c.layout->out_w - left : kOut;
  const size_t width = size_t(c.layout->out_w), first = size_t(top - c.first_row) * width + size_t(left);
  const int32_t* row = c.layout->row + size_t(top) * width + size_t(left);
  const float* bias = c.layout->bias + block * kBlock;
  float* floats = c.epilogue.floats + first * size_t(c.epilogue.pitch) + size_t(block) * kBlock;
  for (int j = 0; j < columns; j++) {
    F32x16 d[kPoints], out[kOut];
    BITEDGE_UNROLL for (int i = 0; i < kPoints; i++) d[i] = f_load(half + (i * kOut + j) * kBlock);
    from_points(d, out);
    BITEDGE_UNROLL for (int i = 0; i < kOut; i++) {
      if (i >= rows) break;
      const size_t pixel = size_t(i) * width + size_t(j);
      F32x16 y = f_add(out[i], f_load(bias + row[pixel]));
      if (kKind == EpilogueKind::kSteps) {
        run_steps(c.epilogue, first + pixel, block * kBlock, &y, 1);
      } else {
        f_store(floats + pixel * size_t(c.epilogue.pitch),
                kKind == EpilogueKind::kRelu ? f_greater_of(f_zero(), y) : y);
      }
    }
  }
}

// Block by block, so that what is half-way stays in the cache.
template <int kPoints, int kOut, EpilogueKind kKind>
void stem_strip(const StemConv& c, int32_t tile, int32_t tiles, float* v, float* half) {
  const size_t tile_floats = size_t(kPoints) * size_t(c.layout->lanes),
               pitch = size_t(tuning::kStemStrip) * tile_floats;
  const bool transformed = c.block_begin > 0 && c.tile_end - c.tile_begin <= tuning::kStemStrip;
  for (int32_t i = 0; i < tiles && !transformed; i++) {
    for (int32_t lane = 0; lane < c.layout->lanes; lane += kBlock) {
      transform_image<kPoints, kOut>(c, tile + i, lane, v + size_t(i) * tile_floats + size_t(lane) * kPoints, pitch);
    }
  }
  const float* u = c.layout->weights + size_t(c.block_begin) * size_t(c.layout->depth) * kPoints * kPoints * kBlock;
  for (int32_t block = c.block_begin; block < c.block_end; block++) {
    for (int row = 0; row < kPoints; row++, u += size_t(c.layout->depth) * kPoints * kBlock) {
      multiply_tiles<kPoints, kOut>(c, row == kPoints - 1, tiles, v + size_t(row) * pitch, u,
                                    half + row * kOut * kBlock);
    }
    for (int32_t i = 0; i < tiles; i++) {
      transform_outputs<kPoints, kOut, kKind>(c, tile + i, block, half + i * kPoints * kOut * kBlock);
    }
  }
}

template <int kPoints, int kOut>
void stem_conv(const StemConv& c) {
  // The weights carry the fma that came first; what is left is nothing, a ReLU, or anything.
  const auto strip = c.epilogue.kind == EpilogueKind::kPlain  ? stem_strip<kPoints, kOut, EpilogueKind::kPlain>
                     : c.epilogue.kind == EpilogueKind::kRelu ? stem_strip<kPoints, kOut, EpilogueKind::kRelu>
                                                              : stem_strip<kPoints, kOut, EpilogueKind::kSteps>;
  float* half = c.scratch + size_t(kPoints * kPoints) * tuning::kStemStrip * size_t(c.layout->lanes);
  for (int32_t tile = c.tile_begin; tile < c.tile_end; tile += tuning::kStemStrip) {
    strip(c, tile, c.tile_end - tile < tuning::kStemStrip ? c.tile_end - tile : tuning::kStemStrip, c.scratch, half);
  }
}

void run_stem(const StemConv& c) {
  if (c.layout->points == 6) return stem_conv<6, 4>(c);
  c.layout->tile == 4 ? stem_conv<7, 4>(c) : stem_conv<7, 5>(c);
}

}  // namespace
}  // namespace bitedge
