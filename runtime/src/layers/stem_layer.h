// The first convolution of a network with float weights: normalize and conv2d in one, straight from the bytes of the
// image.
#pragma once

#include <memory>
#include <vector>

#include "base/aligned.h"
#include "layers/epilogue.h"
#include "layers/geometry.h"
#include "layers/layer.h"

namespace bitedge {

struct StemKernel;

class StemLayer final : public Layer {
 public:
  StemLayer(const Graph& graph, const Node& normalize, const Node& conv, const KernelSet& kernels,
            const Geometry& geometry);

  size_t scratch_bytes(size_t images, int threads) const override;
  bool owns_weights() const override { return true; }
  void run(const Call& call, Pool& pool) const override;

  // The parts of run(), for a layer that goes on with the rows while they are in the cache.
  const Geometry& geometry() const { return geometry_; }
  const EpilogueBinder& epilogue() const { return epilogue_; }
  bool plain() const { return plain_; }   // floats out, and no residual
  int32_t tile() const { return tile_; }  // rows and columns of the output that come together
  size_t map_bytes() const;
  size_t thread_floats() const;  // scratch of each thread
  void prepare(const uint8_t* image, uint8_t* map, Pool& pool) const;
  // Tiles [begin, end), row by row, of which as many are wanted as `in_row` says.
  struct Tiles {
    int32_t begin, end, in_row;
  };
  // Blocks of channels: all, or one after the other from the first on, for the same tiles and with the same scratch,
  // where the transform of the image stays.
  struct Blocks {
    int32_t begin, end;
  };
  int32_t blocks() const { return blocks_; }
  // Row `first_row` of the output is the first that `epilogue` has room for.
  void convolve(const uint8_t* map, const Tiles& tiles, const Blocks& blocks, int32_t first_row,
                const BoundEpilogue& epilogue, float* scratch) const;

 private:
  void order_depth();
  void choose_centers(const Node& normalize);
  void pack(const Node& normalize, const Node& conv);
  void fill_bias(const Node& normalize, const Node& conv);
  void fill_row(const uint8_t* from, uint8_t* to) const;

  const StemKernel& kernel_;
  Geometry geometry_;
  EpilogueBinder epilogue_;
  bool plain_;
  int32_t stride_, taps_, tile_, points_, tiles_h_, tiles_w_, map_h_, map_w_, depth_, lanes_, blocks_;
  int32_t whole_phases_;  // along each axis, the first ones, that have all taps; others lack the last one
  std::vector<int32_t> order_, elements_, rows_;
  std::vector<uint8_t> padding_;  // as many bytes as the depth
  Aligned<float> weights_, bias_, center_;
  StemLayout layout_;  // what all calls share
};

// `normalize` makes the input of `conv` and nothing else reads it. The layer reads what `normalize` reads. Null when
// there is no kernel for this shape, or nothing to gain.
std::unique_ptr<const StemLayer> make_stem_layer(const Graph& graph, const Node& normalize, const Node& conv,
                                                 const KernelSet& kernels);

}  // namespace bitedge
