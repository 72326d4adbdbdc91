// Convolution of an image with float weights by Winograd's method: four by four outputs at a time, or five by five.
// Included by the file of each instruction set, after finish.inl. The file defines kStemSums, how many sums of sixteen
// lanes it keeps in registers, and kStemBlocks, over how many blocks of channels.
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

inline F16 twice(F16 x) { return f_add(x, x); }

// Bᵀ·d, scaled to small integers. The weights carry the inverse factors.
inline __attribute__((always_inline)) void to_points(const F16 (&d)[6], F16 (&out)[6]) {
  const F16 a = f_sub(d[3], d[1]), b = f_sub(d[4], d[2]), three = f_set(3.0f), two = f_set(2.0f);
  out[0] = f_fma(three, a, twice(f_add(f_sub(d[0], d[2]), b)));
  out[1] = f_fma(three, f_add(d[2], d[3]), twice(f_add(a, b)));
  out[2] = f_fma(three, f_sub(d[2], d[3]), twice(f_sub(a, b)));
  out[3] = f_fma(two, a, b);
  out[4] = f_sub(twice(b), a);
  out[5] = f_fma(three, b, twice(f_sub(f_sub(d[5], d[3]), a)));
}

// First times 2x - 1, which has the root 1/2: what is left are the points 0, 1, -1, 2, -2 and infinity.
inline __attribute__((always_inline)) void to_points(const F16 (&d)[7], F16 (&out)[7]) {
  const F16 two = f_set(2.0f), four = f_set(-4.0f);
  F16 g[6];
  BITEDGE_UNROLL for (int i = 0; i < 6; i++) g[i] = f_sub(twice(d[i + 1]), d[i]);
  const F16 even = f_fma(four, g[2], g[4]), odd = f_fma(four, g[1], g[3]);
  const F16 near_even = f_sub(g[4], g[2]), near_odd = f_sub(g[3], g[1]);
  out[0] = f_fma(four, f_sub(g[2], g[0]), near_even);
  out[1] = f_add(even, odd);
  out[2] = f_sub(even, odd);
  out[3] = f_fma(two, near_odd, near_even);
  out[4] = f_fma(f_set(-2.0f), near_odd, near_even);
  out[5] = f_fma(four, f_sub(d[3], d[1]), f_sub(d[5], d[3]));
  out[6] = f_fma(four, near_odd, f_sub(g[5], g[3]));
}

// The transform of an image that is 1 everywhere is this at the point 1, squared, and zero at all others.
template <int kPoints>
constexpr float kOnes = kPoints == 6 ? 6.0f : -6.0f;

// Aᵀ·m: the outputs from the points.
inline __attribute__((always_inline)) void from_points(const F16 (&m)[6], F16 (&out)[4]) {
  const F16 sum = f_add(m[1], m[2]), difference = f_sub(m[1], m[2]);
  out[0] = f_add(f_add(m[0], sum), f_add(m[3], m[4]));
  out[1] = f_fma(f_set(-2.0f), m[4], f_fma(f_set(0.5f), m[3], difference));
  out[2] = f_fma(f_set(4.0f), m[4], f_fma(f_set(0.25f), m[3], sum));
  out[3] = f_add(f_fma(f_set(-8.0f), m[4], f_fma(f_set(0.125f), m[3], difference)), m[5]);
}

template <int kOut>
inline __attribute__((always_inline)) void from_points(const F16 (&m)[7], F16 (&out)[kOut]) {
  const F16 sum = f_add(m[1], m[2]), difference = f_sub(m[1], m[2]);
  const F16 far_sum = f_add(m[3], m[4]), far_difference = f_sub(m[3], m[4]);
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
  F16 half[kPoints][kPoints];
  for (int i = 0; i < kPoints; i++) {
    const uint8_t* from = c.map + ((row + size_t(i)) * size_t(c.map_w) + column) * size_t(c.lanes) + lane;
    F16 d[kPoints];
    BITEDGE_UNROLL for (int j = 0; j < kPoints; j++) d[j] = f_from_bytes(from + j * c.lanes);
    to_points(d, half[i]);
  }
  for (int j = 0; j < kPoints; j++) {
    F16 d[kPoints], out[kPoints];
    BITEDGE_UNROLL for (int i = 0; i < kPoints; i++) d[i] = half[i][j];
    to_points(d, out);
    if (j == 1) out[1] = f_fma(f_set(-kOnes<kPoints> * kOnes<kPoints>), f_load(c.center + lane), out[1]);
    BITEDGE_UNROLL for (int i = 0; i < kPoints; i++) f_store(v + size_t(i) * pitch + j * kBlock, out[i]);
  }
}

// Adds the products of elements [k, end) of the depth at the first kUsed points of a row.
template <int kUsed, int kPoints, int kTiles, int kBlocks>
inline __attribute__((always_inline)) void add_products(const StemConv& c, int32_t k, int32_t end, const float* v,
                                                        const float* u, F16 (&acc)[kTiles][kBlocks][kPoints]) {
  const size_t tile = size_t(kPoints) * size_t(c.lanes), block = size_t(c.depth) * kPoints * kBlock;
  for (; k < end; k++) {
    const float* x = v + (k / kBlock * kPoints * kBlock + k % kBlock);
    const float* w = u + size_t(k) * kPoints * kBlock;
    BITEDGE_UNROLL for (int p = 0; p < kUsed; p++) {
      F16 weights[kBlocks];
      BITEDGE_UNROLL for (int j = 0; j < kBlocks; j++) weights[j] = f_load(w + size_t(j) * block + p * kBlock);
      BITEDGE_UNROLL for (int i = 0; i < kTiles; i++) {
        const F16 pixel = f_set(x[size_t(i) * tile + size_t(p * kBlock)]);
        BITEDGE_UNROLL for (int j = 0; j < kBlocks; j++) acc[i][j][p] = f_fma(pixel, weights[j], acc[i][j][p]);
      }
    }
  }
}

// One row of points: kTiles tiles by kBlocks blocks, folded to half[tile][block][row][kOut] while they are in
// registers. `v` has [lanes / 16][kPoints][16] floats per tile, `u` blocks of [depth][kPoints][16]. Phases that lack
// the last tap have nothing at infinity, which is the last point: of `phases` rows of phases, each begins with those
// that have it.
template <int kPoints, int kOut, int kTiles, int kBlocks>
inline __attribute__((always_inline)) void multiply(const StemConv& c, int32_t phases, const float* v, const float* u,
                                                    float* half) {
  F16 acc[kTiles][kBlocks][kPoints];
  BITEDGE_UNROLL for (int i = 0; i < kTiles; i++) {
    BITEDGE_UNROLL for (int j = 0; j < kBlocks; j++) {
      BITEDGE_UNROLL for (int p = 0; p < kPoints; p++) acc[i][j][p] = f_zero();
    }
  }
  const int32_t width = c.depth / c.phases, whole = width / c.phases * c.whole_phases;
  for (int32_t k = 0; k < phases * width; k += width) {
    add_products<kPoints>(c, k, k + whole, v, u, acc);
    add_products<kPoints - 1>(c, k + whole, k + width, v, u, acc);
  }
  BITEDGE_UNROLL for (int i = 0; i < kTiles; i++) {
    BITEDGE_UNROLL for (int j = 0; j < kBlocks; j++) {
      F16 out[kOut];
      from_points(acc[i][j], out);
      float* to = half + size_t(i * c.blocks + j) * kPoints * kOut * kBlock;
      BITEDGE_UNROLL for (int o = 0; o < kOut; o++) f_store(to + o * kBlock, out[o]);
    }
  }
}

// The tiles that do not fill a register tile.
template <int kPoints, int kOut, int kTiles, int kBlocks>
inline void multiply_rest(const StemConv& c, int32_t phases, int32_t tiles, const float* v, const float* u,
                          float* half) {
  if (tiles == kTiles) return multiply<kPoints, kOut, kTiles, kBlocks>(c, phases, v, u, half);
  if constexpr (kTiles > 1) multiply_rest<kPoints, kOut, kTiles - 1, kBlocks>(c, phases, tiles, v, u, half);
}

template <int kPoints, int kOut, int kBlocks>
void multiply_tiles(const StemConv& c, int32_t phases, int32_t tiles, const float* v, const float* u, float* half) {
  constexpr int kTiles = kStemSums / kStemBlocks / kPoints;
  const size_t from = size_t(kPoints) * size_t(c.lanes), to = size_t(c.blocks) * kPoints * kOut * kBlock;
  for (; tiles >= kTiles; tiles -= kTiles, v += kTiles * from, half += kTiles * to) {
    multiply<kPoints, kOut, kTiles, kBlocks>(c, phases, v, u, half);
  }
  if (tiles > 0) multiply_rest<kPoints, kOut, kTiles, kBlocks>(c, phases, tiles, v, u, half);
}

// Which part of the epilogue is left: none but the bias, ReLU, or any.
enum class StemEnding { kLinear, kRelu, kAny };

// From half-way, [rows of points][kOut columns], to the pixels of one tile and block.
template <int kPoints, int kOut, StemEnding kEnding>
inline void transform_outputs(const StemConv& c, int32_t tile, int32_t block, const float* half) {
  const int32_t top = tile / c.tiles_w * kOut, left = tile % c.tiles_w * kOut;
  const int32_t rows = c.out_h - top < kOut ? c.out_h - top : kOut,
                columns = c.out_w - left < kOut ? c.out_w - left : kOut;
  const size_t width = size_t(c.out_w), first = size_t(top - c.first_row) * width + size_t(left);
  const int32_t* row = c.row + size_t(top) * width + size_t(left);
  const float* bias = c.bias + block * kBlock;
  const Tail<Ending::kAny> tail(c.finish, first, block * kBlock);
  float* floats = c.finish.floats + first * size_t(c.finish.channels) + size_t(block) * kBlock;
  for (int j = 0; j < columns; j++) {
    F16 d[kPoints], out[kOut];
    BITEDGE_UNROLL for (int i = 0; i < kPoints; i++) d[i] = f_load(half + (i * kOut + j) * kBlock);
    from_points(d, out);
    BITEDGE_UNROLL for (int i = 0; i < kOut; i++) {
      if (i >= rows) break;
      const size_t pixel = size_t(i) * width + size_t(j);
      const F16 y = f_add(out[i], f_load(bias + row[pixel]));
      if (kEnding == StemEnding::kAny) {
        tail.put(pixel, y);
      } else {
        f_store(floats + pixel * size_t(c.finish.channels),
                kEnding == StemEnding::kRelu ? f_select(f_less(y, f_zero()), f_zero(), y) : y);
      }
    }
  }
}

template <int kPoints, int kOut, StemEnding kEnding>
void stem_strip(const StemConv& c, int32_t tile, int32_t tiles, float* v, float* half) {
  const size_t tile_floats = size_t(kPoints) * size_t(c.lanes), pitch = size_t(StemConv::kStrip) * tile_floats;
  const size_t block_half = size_t(kPoints) * kOut * kBlock, block_weights = size_t(c.depth) * kPoints * kBlock;
  for (int32_t i = 0; i < tiles; i++) {
    for (int32_t lane = 0; lane < c.lanes; lane += kBlock) {
      transform_image<kPoints, kOut>(c, tile + i, lane, v + size_t(i) * tile_floats + size_t(lane) * kPoints, pitch);
    }
  }
  for (int row = 0; row < kPoints; row++) {
    const int32_t phases = row == kPoints - 1 ? c.whole_phases : c.phases;
    const float* u = c.weights + size_t(row) * size_t(c.blocks) * block_weights;
    const float* from = v + size_t(row) * pitch;
    float* to = half + size_t(row) * kOut * kBlock;
    int32_t block = 0;
    for (; block + kStemBlocks <= c.blocks; block += kStemBlocks) {
      multiply_tiles<kPoints, kOut, kStemBlocks>(c, phases, tiles, from, u + size_t(block) * block_weights,
                                           to + size_t(block) * block_half);
    }
    if constexpr (kStemBlocks > 1) {
      for (; block < c.blocks; block++) {
        multiply_tiles<kPoints, kOut, 1>(c, phases, tiles, from, u + size_t(block) * block_weights,
                                   to + size_t(block) * block_half);
      }
    }
  }
  for (int32_t i = 0; i < tiles; i++) {
    for (int32_t block = 0; block < c.blocks; block++) {
      transform_outputs<kPoints, kOut, kEnding>(c, tile + i, block, half + size_t(i * c.blocks + block) * block_half);
    }
  }
}

template <int kPoints, int kOut>
void stem_conv(const StemConv& c) {
  const Finish& f = c.finish;
  const bool floats = f.floats && !f.bits && !f.scale && f.residual_kind == Finish::kNone && f.channels % kBlock == 0;
  const auto strip = !floats || f.activation == Finish::kPrelu ? stem_strip<kPoints, kOut, StemEnding::kAny>
                     : f.activation == Finish::kRelu           ? stem_strip<kPoints, kOut, StemEnding::kRelu>
                                                               : stem_strip<kPoints, kOut, StemEnding::kLinear>;
  float* half = c.scratch + size_t(kPoints * kPoints) * StemConv::kStrip * size_t(c.lanes);
  for (int32_t tile = c.tile_begin; tile < c.tile_end; tile += StemConv::kStrip) {
    strip(c, tile, c.tile_end - tile < StemConv::kStrip ? c.tile_end - tile : StemConv::kStrip, c.scratch, half);
  }
}

void run_stem(const StemConv& c) {
  if (c.points == 6) return stem_conv<6, 4>(c);
  c.tile == 4 ? stem_conv<7, 4>(c) : stem_conv<7, 5>(c);
}

}  // namespace
}  // namespace bitedge
