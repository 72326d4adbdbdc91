#include "pooled_stem.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "../kernels/kernels.h"
#include "pool_window.h"
#include "threads.h"

namespace bitedge {
namespace {

class PooledStem final : public Layer {
 public:
  PooledStem(const Graph& graph, const StemLayer& stem, const Node& pool, const Node* sign, const KernelSet& kernels)
      : Layer(stem.kernel() + std::string(" + max_pool2d") + (sign ? " + elementwise" : "")),
        stem_(stem),
        kernels_(*kernels.rows),
        pool_(pool_window(graph, pool)),
        out_(graph.values[size_t(pool.outputs[0])].shape),
        width_(size_t(stem.geometry().out.width) * size_t(stem.geometry().out.channels)) {
    if (sign) sign_.emplace(*sign, nullptr, graph.values[size_t(sign->outputs[0])].shape);
  }

  size_t scratch_bytes(size_t, int threads) const override {
    return stem_.map_bytes() + size_t(threads) * thread_floats() * sizeof(float);
  }

  void run(const Call& call, Pool& threads) const override {
    Call tail = call;  // of the elementwise node
    tail.first = call.second;
    tail.second = nullptr;
    if (sign_) sign_->clear_tails(tail);
    uint8_t* map = static_cast<uint8_t*>(call.scratch);
    float* scratch = reinterpret_cast<float*>(map + stem_.map_bytes());
    // A band repeats the row of tiles that its first window shares with the band above: one for each thread.
    const size_t height = size_t(out_.height), bands = std::min(height, size_t(threads.size()));
    for (size_t image = 0; image < call.images; image++) {
      stem_.prepare(static_cast<const uint8_t*>(call.input) + image * stem_.geometry().in.elements(), map, threads);
      float* pooled = static_cast<float*>(call.first) + image * out_.elements();
      const Finish finish = sign_ ? sign_->bind(tail, image) : Finish();
      threads.each_on(bands, [&](size_t i, int thread) {
        band(map, int32_t(height * i / bands), int32_t(height * (i + 1) / bands), pooled, finish,
             scratch + size_t(thread) * thread_floats());
      });
    }
  }

 private:
  // Rows of the convolution that are kept: those of one row of tiles, and those that a window reaches back to.
  size_t kept_rows() const { return size_t(2 * stem_.tile_height() + pool_.kernel_h); }
  size_t thread_floats() const { return stem_.thread_floats() + kept_rows() * width_; }

  // Pooled rows [begin, end).
  void band(const uint8_t* map, int32_t begin, int32_t end, float* pooled, const Finish& finish, float* scratch) const {
    float* rows = scratch + stem_.thread_floats();
    Call call;
    call.first = rows;
    const Finish into_rows = stem_.ending().bind(call, 0);
    const int32_t step = stem_.tile_height(), conv_rows = stem_.geometry().out.height;
    const auto first_needed = [&](int32_t y) { return std::max(0, y * pool_.stride_h - pool_.pad_top); };
    const auto last_needed = [&](int32_t y) {
      return std::min(conv_rows, y * pool_.stride_h - pool_.pad_top + pool_.kernel_h);
    };

    int32_t first = first_needed(begin) / step * step, made = first;  // rows [first, made) are in `rows`
    for (int32_t y = begin; y < end;) {
      int32_t next = y;
      while (next < end && last_needed(next) <= made) next++;
      if (next > y) {
        emit(rows, first, y, next, pooled, finish);
        y = next;
        continue;
      }
      const int32_t keep_from = std::min(first_needed(y), made);
      if (keep_from > first) {
        std::memmove(rows, rows + size_t(keep_from - first) * width_,
                     size_t(made - keep_from) * width_ * sizeof(float));
        first = keep_from;
      }
      const size_t tile = size_t(made / step) * stem_.tiles_in_row();
      stem_.convolve(map, tile, tile + stem_.tiles_in_row(), first, into_rows, scratch);
      made = std::min(made + step, conv_rows);
    }
  }

  void emit(const float* rows, int32_t first, int32_t begin, int32_t end, float* pooled, const Finish& finish) const {
    Pool2d p = pool_;
    p.input = rows;
    p.output = pooled;
    p.in_h -= first;
    p.pad_top += first;
    p.row_begin = begin;
    p.row_end = end;
    kernels_.max_pool_float(p);
    const size_t width = size_t(out_.width);
    if (sign_) kernels_.elementwise(pooled, false, size_t(begin) * width, size_t(end) * width, finish);
  }

  const StemLayer& stem_;
  const RowKernels& kernels_;
  Pool2d pool_;
  Shape out_;
  size_t width_;  // floats in a row of the convolution
  std::optional<EndingPlan> sign_;
};

}  // namespace

std::unique_ptr<const Layer> make_pooled_stem(const Graph& graph, const StemLayer& stem, const Node& pool,
                                              const Node* sign, const KernelSet& kernels) {
  return std::make_unique<PooledStem>(graph, stem, pool, sign, kernels);
}

}  // namespace bitedge
