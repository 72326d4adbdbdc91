#include "layers/row_layer.h"

#include <algorithm>

#include "base/threads.h"
#include "kernels/kernels.h"
#include "layers/epilogue.h"
#include "layers/pool_window.h"

namespace bitedge {
namespace {

// Threads share rows of pixels; parts small enough to balance, large enough not to matter.
size_t parts_of(const Pool& pool, size_t rows) {
  return pool.size() == 1 ? 1 : std::min(rows, size_t(pool.size()) * 4);
}

class PoolLayer final : public Layer {
 public:
  PoolLayer(const Graph& graph, const Node& node, const KernelSet& kernels)
      : Layer(std::string(kernels.name) + (node.op == Op::kAvgPool2d ? " avg_pool2d" : " max_pool2d")) {
    const Value& in = graph.values[size_t(node.inputs[0])];
    const Shape& out = graph.values[size_t(node.outputs[0])].shape;
    bits_ = in.kind == Kind::kBits;
    kernel_ = node.op == Op::kAvgPool2d ? kernels.rows->avg_pool
              : bits_                   ? kernels.rows->max_pool_bits
                                        : kernels.rows->max_pool_float;
    pool_ = pool_window(graph, node);
    rows_ = size_t(out.height);
    unit_ = size_t(pool_.lanes) * (bits_ ? sizeof(uint64_t) : sizeof(float));
    in_bytes_ = in.shape.pixels() * unit_;
    out_bytes_ = out.pixels() * unit_;
  }

  size_t scratch_bytes(size_t, int) const override { return 0; }

  void run(const Call& call, Pool& pool) const override {
    const size_t parts = parts_of(pool, rows_);
    pool.each(call.images * parts, [&](size_t i) {
      const size_t image = i / parts, part = i % parts;
      Pool2d p = pool_;
      p.input = static_cast<const unsigned char*>(call.inputs[0]) + image * in_bytes_;
      p.output = static_cast<unsigned char*>(call.outputs[0]) + image * out_bytes_;
      p.row_begin = int32_t(rows_ * part / parts);
      p.row_end = int32_t(rows_ * (part + 1) / parts);
      kernel_(p);
    });
  }

 private:
  void (*kernel_)(const Pool2d&);
  Pool2d pool_;
  bool bits_;
  size_t rows_, unit_, in_bytes_, out_bytes_;
};

class AdaptivePoolLayer final : public Layer {
 public:
  AdaptivePoolLayer(const Graph& graph, const Node& node, const KernelSet& kernels)
      : Layer(std::string(kernels.name) + " adaptive_avg_pool2d"),
        kernel_(kernels.rows->adaptive_avg_pool),
        in_(graph.values[size_t(node.inputs[0])].shape),
        out_(graph.values[size_t(node.outputs[0])].shape) {}

  size_t scratch_bytes(size_t, int) const override { return 0; }

  void run(const Call& call, Pool& pool) const override {
    const size_t rows = size_t(out_.height), parts = parts_of(pool, rows);
    pool.each(call.images * parts, [&](size_t i) {
      const size_t image = i / parts, part = i % parts;
      AdaptivePool p;
      p.input = static_cast<const float*>(call.inputs[0]) + image * in_.elements();
      p.output = static_cast<float*>(call.outputs[0]) + image * out_.elements();
      p.in_h = in_.height;
      p.in_w = in_.width;
      p.out_h = out_.height;
      p.out_w = out_.width;
      p.channels = in_.channels;
      p.row_begin = int32_t(rows * part / parts);
      p.row_end = int32_t(rows * (part + 1) / parts);
      kernel_(p);
    });
  }

 private:
  void (*kernel_)(const AdaptivePool&);
  Shape in_, out_;
};

class RowLayer final : public Layer {
 public:
  RowLayer(const Graph& graph, const Node& node, const KernelSet& kernels, const char* op,
           void (*run_rows)(const Rows&))
      : Layer(std::string(kernels.name) + " " + op), kernel_(run_rows) {
    const Value& in = graph.values[size_t(node.inputs[0])];
    pixels_ = in.shape.pixels();
    row_.channels = in.shape.channels;
    row_.eps = node.eps;
    row_.scale = node.op == Op::kNormalize ? node.scale.data : node.weight_f32.data;
    row_.bias = node.offset.data;
    in_bytes_ = size_t(row_.channels) * (in.kind == Kind::kUint8 ? 1 : sizeof(float));
  }

  size_t scratch_bytes(size_t, int) const override { return 0; }

  void run(const Call& call, Pool& pool) const override {
    const size_t pixels = call.images * pixels_, parts = parts_of(pool, pixels);
    pool.each(parts, [&](size_t part) {
      const size_t begin = pixels * part / parts, end = pixels * (part + 1) / parts;
      Rows r = row_;
      r.input = static_cast<const unsigned char*>(call.inputs[0]) + begin * in_bytes_;
      r.output = static_cast<float*>(call.outputs[0]) + begin * size_t(r.channels);
      r.pixels = end - begin;
      kernel_(r);
    });
  }

 private:
  void (*kernel_)(const Rows&);
  Rows row_;
  size_t pixels_, in_bytes_;
};

class ElementwiseLayer final : public Layer {
 public:
  ElementwiseLayer(const Graph& graph, const Node& node, const KernelSet& kernels)
      : Layer(std::string(kernels.name) + " elementwise"),
        kernel_(kernels.rows->elementwise),
        from_bits_(graph.values[size_t(node.inputs[0])].kind == Kind::kBits),
        pixels_(graph.values[size_t(node.inputs[0])].shape.pixels()),
        epilogue_(graph, node) {}

  size_t scratch_bytes(size_t, int) const override { return 0; }

  void run(const Call& call, Pool& pool) const override {
    epilogue_.clear_tails(call);
    const size_t pixels = call.images * pixels_, parts = parts_of(pool, pixels);
    const BoundEpilogue epilogue = epilogue_.bind(call, 0);
    pool.each(parts, [&](size_t part) {
      kernel_(call.inputs[0], from_bits_, pixels * part / parts, pixels * (part + 1) / parts, epilogue);
    });
  }

 private:
  void (*kernel_)(const void*, bool, size_t, size_t, const BoundEpilogue&);
  bool from_bits_;
  size_t pixels_;
  EpilogueBinder epilogue_;
};

}  // namespace

std::unique_ptr<const Layer> make_row_layer(const Graph& graph, const Node& node, const KernelSet& kernels) {
  if (!kernels.rows) return nullptr;
  switch (node.op) {
    case Op::kMaxPool2d:
    case Op::kAvgPool2d:
      return std::make_unique<PoolLayer>(graph, node, kernels);
    case Op::kAdaptiveAvgPool2d:
      return std::make_unique<AdaptivePoolLayer>(graph, node, kernels);
    case Op::kNormalize:
      return std::make_unique<RowLayer>(graph, node, kernels, "normalize", kernels.rows->normalize);
    case Op::kLayerNorm:
      return std::make_unique<RowLayer>(graph, node, kernels, "layer_norm", kernels.rows->layer_norm);
    case Op::kSoftmax:
      return std::make_unique<RowLayer>(graph, node, kernels, "softmax", kernels.rows->softmax);
    default:
      return std::make_unique<ElementwiseLayer>(graph, node, kernels);
  }
}

}  // namespace bitedge
