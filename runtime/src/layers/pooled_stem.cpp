#include "layers/pooled_stem.h"

#include <algorithm>
#include <optional>

#include "base/threads.h"
#include "kernels/kernels.h"
#include "layers/pool_window.h"

namespace bitedge {
namespace {

// One block of channels at a time, a few rows of it, so that the convolution's floats never leave the cache.
//
// Threads share bands: whole rows of tiles. A pooled row whose window reaches over the seam of two bands is made when
// both are done, out of the rows next to the seam, which each band copies. So no row is computed twice.
class PooledStem final : public Layer {
 public:
  PooledStem(const Graph& graph, const StemLayer& stem, const Node& pool, const Node* sign, const KernelSet& kernels)
      : Layer(stem.kernel() + std::string(" + max_pool2d") + (sign ? " + elementwise" : "")),
        stem_(stem),
        kernels_(*kernels.rows),
        pool_(pool_window(graph, pool)),
        out_(graph.values[size_t(pool.outputs[0])].shape),
        reach_((pool_.kernel_h - 1) * pool_.dilation_h + 1),
        conv_rows_(std::min(stem.geometry().out.height, (out_.height - 1) * pool_.stride_h - pool_.pad_top + reach_)),
        tile_rows_(in_tiles(conv_rows_)),
        tiles_in_row_(in_tiles(std::min(stem.geometry().out.width, last_column() + 1))),
        together_(std::max(1, tuning::kStemStrip / tiles_in_row_)),
        width_(size_t(stem.geometry().out.width) * kBlock) {
    pool_.in_pitch = kBlock;
    if (sign) sign_.emplace(graph, *sign);
  }

  size_t scratch_bytes(size_t, int threads) const override {
    const size_t seams = size_t(bands(threads) - 1) * seam_floats();
    return stem_.map_bytes() + (size_t(threads) * thread_floats() + seams) * sizeof(float);
  }

  void run(const Call& call, Pool& threads) const override {
    Call tail = call;  // of the elementwise node
    tail.outputs++;
    if (sign_) sign_->clear_tails(tail);
    uint8_t* map = static_cast<uint8_t*>(call.scratch);
    Work work;
    work.map = map;
    work.bands = bands(threads.size());
    work.scratch = reinterpret_cast<float*>(map + stem_.map_bytes());
    work.seams = work.scratch + size_t(threads.size()) * thread_floats();
    for (size_t image = 0; image < call.images; image++) {
      stem_.prepare(static_cast<const uint8_t*>(call.inputs[0]) + image * stem_.geometry().in.elements(), map, threads);
      work.pooled = static_cast<float*>(call.outputs[0]) + image * out_.elements();
      if (sign_) work.epilogue = sign_->bind(tail, image);
      threads.each_on(size_t(work.bands), [&](size_t i, int thread) {
        band(work, int32_t(i), work.scratch + size_t(thread) * thread_floats());
      });
      threads.each(size_t(work.bands - 1), [&](size_t i) { close_seam(work, int32_t(i) + 1); });
    }
  }

 private:
  static constexpr int32_t kBandsPerThread = 4;

  int32_t in_tiles(int32_t outputs) const { return (outputs + stem_.tile() - 1) / stem_.tile(); }
  int32_t last_column() const {
    return (out_.width - 1) * pool_.stride_w - pool_.pad_left + (pool_.kernel_w - 1) * pool_.dilation_w;
  }

  // One image on its way.
  struct Work {
    const uint8_t* map = nullptr;
    float *scratch = nullptr, *seams = nullptr, *pooled = nullptr;
    BoundEpilogue epilogue;
    int32_t bands = 1;
  };

  // A window must not reach over two seams, and rows of tiles that go together share the weights in the cache.
  int32_t bands(int threads) const {
    const int32_t least = std::max(in_tiles(reach_), together_ / 2);
    return threads == 1 ? 1 : std::max(1, std::min(tile_rows_ / least, threads * kBandsPerThread));
  }

  // Seam i lies between bands i - 1 and i, above this row of the convolution.
  int32_t seam_row(const Work& work, int32_t i) const {
    return std::min(conv_rows_, tile_rows_ * i / work.bands * stem_.tile());
  }
  size_t blocks() const { return size_t(stem_.blocks()); }
  size_t block_seam_floats() const { return 2 * size_t(reach_ - 1) * width_; }
  size_t seam_floats() const { return blocks() * block_seam_floats(); }
  float* seam(const Work& work, int32_t i, size_t block) const {
    return work.seams + size_t(i - 1) * seam_floats() + block * block_seam_floats();
  }

  // The rows of the convolution [begin, end) that a pooled row sees.
  int32_t window_begin(int32_t y) const { return std::max(0, y * pool_.stride_h - pool_.pad_top); }
  int32_t window_end(int32_t y) const { return std::min(conv_rows_, y * pool_.stride_h - pool_.pad_top + reach_); }

  // Pooled rows that are complete above a row of the convolution; and those that begin above it.
  int32_t complete(int32_t row) const {
    int32_t y = 0;
    while (y < out_.height && window_end(y) <= row) y++;
    return y;
  }
  int32_t begun(int32_t row) const {
    int32_t y = 0;
    while (y < out_.height && window_begin(y) < row) y++;
    return y;
  }

  // Rows that a window reaches back to, of each block; then rows of one block, those and the ones that come together.
  size_t kept_floats() const { return size_t(reach_ - 1) * width_; }
  size_t rows_floats() const { return kept_floats() + size_t(together_ * stem_.tile()) * width_; }
  size_t thread_floats() const { return stem_.thread_floats() + blocks() * kept_floats() + rows_floats(); }

  void band(const Work& work, int32_t i, float* scratch) const {
    float *kept = scratch + stem_.thread_floats(), *rows = kept + blocks() * kept_floats();
    const int32_t begin = seam_row(work, i), end = seam_row(work, i + 1);
    int32_t first = begin, made = begin, y = begun(begin);  // rows [first, made) are kept
    while (made < end) {
      const int32_t next = std::min(made + together_ * stem_.tile(), end), ready = std::max(y, complete(next));
      const int32_t keep_from = std::min(std::max(window_begin(ready), first), next);
      const StemLayer::Tiles tiles = {made / stem_.tile() * tiles_in_row_, in_tiles(next) * tiles_in_row_,
                                      tiles_in_row_};
      for (size_t block = 0; block < blocks(); block++) {
        float* keep = kept + block * kept_floats();
        std::copy_n(keep, size_t(made - first) * width_, rows);
        const int32_t number = int32_t(block);
        stem_.convolve(work.map, tiles, {number, number + 1}, first, into(rows, block), scratch);
        pool(work, rows, first, y, ready, block);
        copy_to_seams(work, i, rows + size_t(made - first) * width_, made, next, block);
        std::copy_n(rows + size_t(keep_from - first) * width_, size_t(next - keep_from) * width_, keep);
      }
      sign(work, y, ready);
      first = keep_from;
      made = next;
      y = ready;
    }
  }

  // The convolution's epilogue, into rows of one block.
  BoundEpilogue into(float* rows, size_t block) const {
    void* const floats = rows - block * kBlock;  // within the scratch, which begins long before
    Call call;
    call.outputs = &floats;
    BoundEpilogue epilogue = stem_.epilogue().bind(call, 0);
    epilogue.pitch = kBlock;
    return epilogue;
  }

  // Rows [begin, end) of band i, as far as they lie next to a seam.
  void copy_to_seams(const Work& work, int32_t i, const float* rows, int32_t begin, int32_t end, size_t block) const {
    for (int32_t s = std::max(i, 1); s <= std::min(i + 1, work.bands - 1); s++) {
      const int32_t top = seam_row(work, s) - (reach_ - 1), bottom = seam_row(work, s) + reach_ - 1;
      const int32_t from = std::max(begin, top), to = std::min(end, bottom);
      if (from >= to) continue;
      std::copy_n(rows + size_t(from - begin) * width_, size_t(to - from) * width_,
                  seam(work, s, block) + size_t(from - top) * width_);
    }
  }

  void close_seam(const Work& work, int32_t i) const {
    const int32_t row = seam_row(work, i), begin = complete(row), end = begun(row);
    for (size_t block = 0; block < blocks(); block++) {
      pool(work, seam(work, i, block), row - (reach_ - 1), begin, end, block);
    }
    sign(work, begin, end);
  }

  // Pooled rows [begin, end) of a block out of `rows`, of which the first is row `first` of the convolution.
  void pool(const Work& work, const float* rows, int32_t first, int32_t begin, int32_t end, size_t block) const {
    if (begin >= end) return;
    Pool2d p = pool_;
    p.input = rows;
    p.output = work.pooled + block * kBlock;
    p.in_h -= first;
    p.pad_top += first;
    p.row_begin = begin;
    p.row_end = end;
    p.lanes = std::min(kBlock, out_.channels - int32_t(block) * kBlock);
    kernels_.max_pool_float(p);
  }

  void sign(const Work& work, int32_t begin, int32_t end) const {
    const size_t width = size_t(out_.width);
    if (sign_ && begin < end) {
      kernels_.elementwise(work.pooled, false, size_t(begin) * width, size_t(end) * width, work.epilogue);
    }
  }

  const StemLayer& stem_;
  const RowKernels& kernels_;
  Pool2d pool_;
  Shape out_;
  int32_t reach_;                                 // rows of the convolution that a window spans
  int32_t conv_rows_, tile_rows_, tiles_in_row_;  // of the convolution, that windows see
  int32_t together_;                              // rows of tiles at a time
  size_t width_;                                  // floats in a row of one block
  std::optional<EpilogueBinder> sign_;
};

}  // namespace

std::unique_ptr<const Layer> make_pooled_stem(const Graph& graph, const StemLayer& stem, const Node& pool,
                                              const Node* sign, const KernelSet& kernels) {
  return std::make_unique<PooledStem>(graph, stem, pool, sign, kernels);
}

}  // namespace bitedge
