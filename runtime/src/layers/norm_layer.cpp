#include "layers/norm_layer.h"

#include <algorithm>
#include <cmath>

#include "base/threads.h"
#include "kernels/kernels.h"
#include "kernels/scalar.h"

namespace bitedge {
namespace {

// The order of scalar::group_norm: rows on their own, then one after the other, then the channels of a group.
class GroupNormLayer final : public Layer {
 public:
  GroupNormLayer(const Graph& graph, const Node& node, const KernelSet& kernels)
      : Layer(std::string(kernels.name) + " group_norm"),
        kernels_(*kernels.rows),
        shape_(graph.values[size_t(node.inputs[0])].shape),
        channels_(size_t(shape_.channels)),
        group_(channels_ / size_t(node.window.groups)),
        eps_(node.eps),
        scale_(node.weight_f32.data),
        bias_(node.offset.data) {}

  // Of an image: the sums of each row, those of the map, mean and inverse of each channel.
  size_t scratch_bytes(size_t images, int) const override { return images * image_floats() * sizeof(float); }

  void run(const Call& call, Pool& pool) const override {
    pass(call, pool, [&](NormRow row, size_t y, const Scratch& s) {
      row.output = s.rows + y * channels_;
      kernels_.row_sums(row);
    });
    pool.each(call.images, [&](size_t image) { find_means(scratch(call, image)); });
    pass(call, pool, [&](NormRow row, size_t y, const Scratch& s) {
      row.output = s.rows + y * channels_;
      row.mean = s.mean;
      kernels_.row_sums(row);
    });
    pool.each(call.images, [&](size_t image) { find_inverses(scratch(call, image)); });
    pass(call, pool, [&](NormRow row, size_t, const Scratch& s) {
      row.mean = s.mean;
      row.inverse = s.inverse;
      kernels_.row_norm(row);
    });
  }

 private:
  struct Scratch {
    float *rows, *sums, *mean, *inverse;
  };

  size_t image_floats() const { return (size_t(shape_.height) + 3) * channels_; }

  Scratch scratch(const Call& call, size_t image) const {
    float* rows = static_cast<float*>(call.scratch) + image * image_floats();
    float* sums = rows + size_t(shape_.height) * channels_;
    return {rows, sums, sums + channels_, sums + 2 * channels_};
  }

  // Calls each(row, y, scratch) for every row of every image.
  template <typename Each>
  void pass(const Call& call, Pool& pool, const Each& each) const {
    const size_t height = size_t(shape_.height), width = size_t(shape_.width) * channels_;
    const size_t rows = call.images * height, parts = pool.size() == 1 ? 1 : std::min(rows, size_t(pool.size()) * 4);
    pool.each(parts, [&](size_t part) {
      for (size_t i = rows * part / parts; i < rows * (part + 1) / parts; i++) {
        NormRow row;
        row.input = static_cast<const float*>(call.inputs[0]) + i * width;
        row.output = static_cast<float*>(call.outputs[0]) + i * width;
        row.scale = scale_;
        row.bias = bias_;
        row.pixels = size_t(shape_.width);
        row.channels = shape_.channels;
        each(row, i % height, scratch(call, i / height));
      }
    });
  }

  void add_rows(const Scratch& s) const {
    std::fill_n(s.sums, channels_, 0.0f);
    for (size_t y = 0; y < size_t(shape_.height); y++) {
      for (size_t c = 0; c < channels_; c++) s.sums[c] += s.rows[y * channels_ + c];
    }
  }

  template <typename Of>
  void each_group(const Scratch& s, float* to, const Of& of) const {
    add_rows(s);
    const float count = float(shape_.pixels() * group_);
    for (size_t first = 0; first < channels_; first += group_) {
      std::fill_n(to + first, group_, of(scalar::sum(s.sums + first, group_) / count));
    }
  }

  void find_means(const Scratch& s) const {
    each_group(s, s.mean, [](float mean) { return mean; });
  }
  void find_inverses(const Scratch& s) const {
    each_group(s, s.inverse, [&](float variance) { return 1.0f / std::sqrt(variance + eps_); });
  }

  const RowKernels& kernels_;
  Shape shape_;
  size_t channels_, group_;
  float eps_;
  const float *scale_, *bias_;
};

}  // namespace

std::unique_ptr<const Layer> make_norm_layer(const Graph& graph, const Node& node, const KernelSet& kernels) {
  if (!kernels.rows) return nullptr;
  return std::make_unique<GroupNormLayer>(graph, node, kernels);
}

}  // namespace bitedge
