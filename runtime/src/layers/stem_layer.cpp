#include "layers/stem_layer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/aligned.h"
#include "base/threads.h"
#include "kernels/kernels.h"
#include "kernels/scalar.h"
#include "layers/epilogue.h"
#include "layers/geometry.h"

namespace bitedge {
namespace {

constexpr int32_t kMostPoints = 7;
constexpr size_t kMostLanes = 64;  // phases times channels

// The finite points of winograd.inl, and the factors that it leaves out of Bᵀ.
struct Point {
  double at, factor;
};
constexpr Point kSix[] = {{0, 1.0 / 2}, {1, 1.0 / 6}, {-1, 1.0 / 6}, {0.5, -16.0 / 15}, {-2, 1.0 / 30}};
constexpr Point kSeven[] = {{0, 1.0 / 4},   {1, 1.0 / 6},    {-1, -1.0 / 18},
                            {2, -1.0 / 72}, {-2, 1.0 / 120}, {0.5, 32.0 / 45}};

// G: the values of a polynomial with coefficients g at the points.
void at_points(const double* g, int32_t taps, int32_t points, double* out) {
  for (int32_t p = 0; p < points - 1; p++) {
    const Point& point = points == 6 ? kSix[p] : kSeven[p];
    double value = 0;
    for (int32_t i = taps - 1; i >= 0; i--) value = value * point.at + g[i];
    out[p] = value * point.factor;
  }
  out[points - 1] = g[taps - 1] * (points == 6 ? 0.5 : -0.5);
}

// `count` runs of kBytes that lie side by side, to every `pitch`th byte.
template <int kBytes>
void copy_runs(const uint8_t* from, uint8_t* to, int32_t pitch, int32_t count) {
  for (int32_t i = 0; i < count; i++) std::memcpy(to + i * pitch, from + i * kBytes, kBytes);
}

double weight(const Node& conv, size_t at) {
  return conv.weight_f32 ? double(conv.weight_f32[at]) : double(scalar::half_to_float(conv.weight_f16[at]));
}

// The element of a channel, where one element holds for all.
double channel_of(const View<float>& view, size_t channel, double missing) {
  return view ? double(view[view.size == 1 ? 0 : channel]) : missing;
}

// The fma that an epilogue begins with, which the weights carry; empty when it does not.
EpilogueStep leading_fma(const Node& conv) {
  const std::vector<EpilogueStep>& steps = conv.epilogue.steps;
  return !steps.empty() && steps[0].kind == StepKind::kFma ? steps[0] : EpilogueStep();
}

int32_t tiles(int32_t outputs, int32_t tile) { return (outputs + tile - 1) / tile; }

// Outputs of a tile along each axis: four taps leave points for four, three taps for five, where fewer of them cover
// the map.
int32_t choose_tile(int32_t taps, const Shape& out) {
  if (taps == 4) return 4;
  const auto products = [&](int64_t tile) {
    return tiles(out.height, int32_t(tile)) * tiles(out.width, int32_t(tile)) * (tile + taps - 1) * (tile + taps - 1);
  };
  return products(4) < products(5) ? 4 : 5;
}

}  // namespace

StemLayer::StemLayer(const Graph& graph, const Node& normalize, const Node& conv, const KernelSet& kernels,
                     const Geometry& geometry)
    : Layer(std::string(kernels.name) + " conv2d " + kernels.stem->tile),
      kernel_(*kernels.stem),
      geometry_(geometry),
      epilogue_(graph, conv, EpilogueBinder::Leading::kFolded),
      plain_(conv.inputs.size() == 1 && !conv.epilogue.emit_bits),
      stride_(geometry.window.stride_h),
      taps_((geometry.window.kernel_h + stride_ - 1) / stride_),
      tile_(choose_tile(taps_, geometry.out)),
      points_(taps_ + tile_ - 1),
      tiles_h_(tiles(geometry.out.height, tile_)),
      tiles_w_(tiles(geometry.out.width, tile_)),
      map_h_(tiles_h_ * tile_ + taps_ - 1),
      map_w_(tiles_w_ * tile_ + taps_ - 1),
      depth_(stride_ * stride_ * geometry.in.channels),
      lanes_((depth_ + kBlock - 1) / kBlock * kBlock),
      blocks_((geometry.out.channels + kBlock - 1) / kBlock),
      whole_phases_(geometry.window.kernel_h - (taps_ - 1) * stride_) {
  order_depth();
  choose_centers(normalize);
  pack(normalize, conv);
  fill_bias(normalize, conv);
  layout_.map_w = map_w_;
  layout_.lanes = lanes_;
  layout_.depth = depth_;
  layout_.center = center_.data();
  layout_.weights = weights_.data();
  layout_.bias = bias_.data();
  layout_.row = rows_.data();
  layout_.tile = tile_;
  layout_.points = points_;
  layout_.element = elements_.data();
  layout_.whole = whole_phases_ * whole_phases_ * geometry_.in.channels;
  layout_.wide = whole_phases_ * stride_ * geometry_.in.channels;
  layout_.high = layout_.wide - layout_.whole;
  layout_.out_h = geometry_.out.height;
  layout_.out_w = geometry_.out.width;
}

size_t StemLayer::map_bytes() const { return (size_t(map_h_) * size_t(map_w_) * size_t(lanes_) + 63) / 64 * 64; }

size_t StemLayer::thread_floats() const { return layout_.scratch_floats(); }

size_t StemLayer::scratch_bytes(size_t, int threads) const {
  return map_bytes() + size_t(threads) * thread_floats() * sizeof(float);
}

// The depth is [phase of y][phase of x][channel] in the map. The kernel takes what has all taps in a row of the kernel
// first, and of either part what has all in a column.
void StemLayer::order_depth() {
  for (int32_t k = 0; k < depth_; k++) order_.push_back(k);
  const auto rank = [&](int32_t k) {
    const int32_t phase = k / geometry_.in.channels;
    return (phase % stride_ < whole_phases_ ? 0 : 2) + (phase / stride_ < whole_phases_ ? 0 : 1);
  };
  std::stable_sort(order_.begin(), order_.end(), [&](int32_t a, int32_t b) { return rank(a) < rank(b); });
  for (const int32_t k : order_) elements_.push_back(k / kBlock * kBlock * points_ + k % kBlock);
}

// The byte that normalizes to nearly 0, which is what padding is. Bytes less this are small integers.
void StemLayer::choose_centers(const Node& normalize) {
  center_ = Aligned<float>(size_t(lanes_));
  for (int32_t i = 0; i < depth_; i++) {
    const size_t c = size_t(i % geometry_.in.channels);
    const double zero = -double(normalize.offset[c]) / double(normalize.scale[c]);
    center_[size_t(i)] = std::isfinite(zero) ? float(std::lround(std::min(255.0, std::max(0.0, zero)))) : 0.0f;
    padding_.push_back(uint8_t(center_[size_t(i)]));
  }
}

// Each phase's kernel, scaled as normalize and the epilogue scale, at the pairs of points:
// [block][row][depth][column][16].
void StemLayer::pack(const Node& normalize, const Node& conv) {
  const Window& w = geometry_.window;
  const int32_t channels = geometry_.in.channels;
  weights_ = Aligned<float>(size_t(points_ * points_) * size_t(blocks_) * size_t(depth_) * kBlock);
  for (int32_t o = 0; o < geometry_.out.channels; o++) {
    const double scale = channel_of(leading_fma(conv).scale, size_t(o), 1);
    for (size_t k = 0; k < order_.size(); k++) {
      const int32_t c = order_[k] % channels, phase = order_[k] / channels, phase_x = phase % stride_,
                    phase_y = phase / stride_;
      double rows[kMostPoints][kMostPoints] = {}, column[kMostPoints];  // [tap of y][point of x], [point of y]
      for (int32_t i = 0; i < taps_; i++) {
        double g[kMostPoints] = {};
        for (int32_t j = 0; j < taps_; j++) {
          const int32_t y = i * stride_ + phase_y, x = j * stride_ + phase_x;
          if (y >= w.kernel_h || x >= w.kernel_w) continue;
          g[j] = weight(conv, size_t(((o * w.kernel_h + y) * w.kernel_w + x) * channels + c)) *
                 double(normalize.scale[size_t(c)]) * scale;
        }
        at_points(g, taps_, points_, rows[i]);
      }
      for (int32_t p = 0; p < points_; p++) {
        double g[kMostPoints] = {};
        for (int32_t i = 0; i < taps_; i++) g[i] = rows[i][p];
        at_points(g, taps_, points_, column);
        for (int32_t row = 0; row < points_; row++) {
          const size_t at = (size_t(o / kBlock) * size_t(points_) + size_t(row)) * size_t(depth_) + k;
          weights_[(at * size_t(points_) + size_t(p)) * kBlock + size_t(o % kBlock)] = float(column[row]);
        }
      }
    }
  }
}

// Σ w·(u·scale + offset) = Σ w·scale·(u - center) + Σ real taps w·(center·scale + offset); then the epilogue's.
void StemLayer::fill_bias(const Node& normalize, const Node& conv) {
  const EpilogueStep fma = leading_fma(conv);
  const Geometry::Classes classes = geometry_.classes();
  const size_t taps = geometry_.taps().size(), channels = size_t(geometry_.in.channels),
               pitch = size_t(blocks_) * kBlock;
  bias_ = Aligned<float>(classes.real.size() * pitch);
  for (size_t o = 0; o < size_t(geometry_.out.channels); o++) {
    for (size_t k = 0; k < classes.real.size(); k++) {
      double sum = 0;
      for (size_t t = 0; t < taps; t++) {
        for (size_t c = 0; classes.real[k][t] && c < channels; c++) {
          const double shift = double(center_[c]) * double(normalize.scale[c]) + double(normalize.offset[c]);
          sum += weight(conv, (o * taps + t) * channels + c) * shift;
        }
      }
      bias_[k * pitch + o] = float(sum * channel_of(fma.scale, o, 1) + channel_of(fma.bias, o, 0));
    }
  }
  for (const int32_t k : classes.of_pixel) rows_.push_back(k * int32_t(pitch));
}

// One row of the image, or padding, to the lanes of its phase in one row of the map.
void StemLayer::fill_row(const uint8_t* from, uint8_t* to) const {
  const int32_t channels = geometry_.in.channels, left = geometry_.window.pad_left, width = geometry_.in.width;
  const int32_t run = stride_ * channels;
  // Positions [first, last) of the map lie on the image altogether.
  const int32_t first = std::min(map_w_, from ? (left + stride_ - 1) / stride_ : map_w_);
  const int32_t last = std::max(first, std::min(map_w_, (left + width) / stride_));
  const auto edge = [&](int32_t x) {
    const int32_t at = x * stride_ - left, begin = std::max(0, -at), end = std::min(stride_, width - at);
    uint8_t* put = to + x * lanes_;
    std::memcpy(put, padding_.data(), size_t(run));
    if (!from || begin >= end) return;
    std::memcpy(put + begin * channels, from + (at + begin) * channels, size_t((end - begin) * channels));
  };
  for (int32_t x = 0; x < first; x++) edge(x);
  if (first < last) {
    const uint8_t* start = from + (first * stride_ - left) * channels;
    uint8_t* put = to + first * lanes_;
    switch (run) {  // a size that is known is a move or two
      case 6:
        copy_runs<6>(start, put, lanes_, last - first);
        break;
      case 12:
        copy_runs<12>(start, put, lanes_, last - first);
        break;
      default:
        for (int32_t x = 0; x < last - first; x++) std::memcpy(put + x * lanes_, start + x * run, size_t(run));
    }
  }
  for (int32_t x = last; x < map_w_; x++) edge(x);
}

// Row by row of the map: the bytes of stride x stride pixels side by side, padding as the center.
void StemLayer::prepare(const uint8_t* image, uint8_t* map, Pool& pool) const {
  const size_t row_bytes = size_t(geometry_.in.width) * size_t(geometry_.in.channels);
  const size_t parts = pool.size() == 1 ? 1 : std::min(size_t(map_h_), size_t(pool.size()) * 4);
  pool.each(parts, [&](size_t part) {
    for (size_t row = size_t(map_h_) * part / parts; row < size_t(map_h_) * (part + 1) / parts; row++) {
      for (int32_t phase = 0; phase < stride_; phase++) {
        const int64_t y = int64_t(row) * stride_ + phase - geometry_.window.pad_top;
        uint8_t* to = map + row * size_t(map_w_) * size_t(lanes_) + phase * stride_ * geometry_.in.channels;
        fill_row(y >= 0 && y < geometry_.in.height ? image + size_t(y) * row_bytes : nullptr, to);
      }
    }
  });
}

void StemLayer::convolve(const uint8_t* map, const Tiles& tiles, const Blocks& blocks, int32_t first_row,
                         const BoundEpilogue& epilogue, float* scratch) const {
  StemConv conv;
  conv.layout = &layout_;
  conv.map = map;
  conv.first_row = first_row;
  conv.tiles_w = tiles.in_row;
  conv.block_begin = blocks.begin;
  conv.block_end = blocks.end;
  conv.tile_begin = tiles.begin;
  conv.tile_end = tiles.end;
  conv.scratch = scratch;
  conv.epilogue = epilogue;
  kernel_.run(conv);
}

void StemLayer::run(const Call& call, Pool& pool) const {
  epilogue_.clear_tails(call);
  uint8_t* map = static_cast<uint8_t*>(call.scratch);
  float* scratch = reinterpret_cast<float*>(map + map_bytes());
  const size_t total = size_t(tiles_h_) * size_t(tiles_w_),
               strips = (total + tuning::kStemStrip - 1) / tuning::kStemStrip;
  const size_t parts = pool.size() == 1 ? 1 : std::min(strips, size_t(pool.size()) * 8);
  for (size_t image = 0; image < call.images; image++) {
    prepare(static_cast<const uint8_t*>(call.inputs[0]) + image * geometry_.in.elements(), map, pool);
    const BoundEpilogue epilogue = epilogue_.bind(call, image);
    pool.each_on(parts, [&](size_t part, int thread) {
      const size_t begin = strips * part / parts * tuning::kStemStrip,
                   end = std::min(total, strips * (part + 1) / parts * tuning::kStemStrip);
      convolve(map, {int32_t(begin), int32_t(end), tiles_w_}, {0, blocks_}, 0, epilogue,
               scratch + size_t(thread) * thread_floats());
    });
  }
}

std::unique_ptr<const StemLayer> make_stem_layer(const Graph& graph, const Node& normalize, const Node& conv,
                                                 const KernelSet& kernels) {
  const Window& w = conv.window;
  const bool square = w.kernel_h == w.kernel_w && w.stride_h == w.stride_w && w.dilation_h == 1 && w.dilation_w == 1;
  if (!kernels.stem || !square || w.groups != 1 || w.kernel_h < 5) return nullptr;
  const int32_t taps = (w.kernel_h + w.stride_h - 1) / w.stride_h;
  const Shape& in = graph.values[size_t(conv.inputs[0])].shape;
  const Geometry geometry(w, in, graph.values[size_t(conv.outputs[0])].shape);
  const size_t lanes = size_t(w.stride_h) * size_t(w.stride_w) * size_t(in.channels);
  if ((taps != 3 && taps != 4) || lanes > kMostLanes || geometry.merged() > 1 || !geometry.fits(lanes)) return nullptr;
  return std::make_unique<StemLayer>(graph, normalize, conv, kernels, geometry);
}

}  // namespace bitedge
