#include "layers/layer.h"

#include "base/threads.h"
#include "kernels/kernels.h"
#include "kernels/scalar.h"
#include "layers/binary_layer.h"
#include "layers/float_layer.h"
#include "layers/image_layer.h"
#include "layers/row_layer.h"

namespace bitedge {
namespace {

constexpr const char* kOpNames[] = {"normalize",  "image_conv2d", "binary_conv2d", "conv2d", "elementwise",
                                    "max_pool2d", "avg_pool2d",   "layer_norm",    "softmax"};

size_t image_bytes(const Value& value) {
  switch (value.kind) {
    case Kind::kUint8:
      return value.shape.elements();
    case Kind::kFloat:
      return value.shape.elements() * sizeof(float);
    default:
      return value.shape.pixels() * value.shape.words() * sizeof(uint64_t);
  }
}

// Any node, by the reference; the threads share the rows of all images.
class ScalarLayer final : public Layer {
 public:
  ScalarLayer(const Graph& graph, const Node& node)
      : Layer(std::string("scalar ") + kOpNames[size_t(node.op)]),
        node_(node),
        input_(graph.values[size_t(node.inputs[0])]),
        residual_(node.inputs.size() > 1 ? &graph.values[size_t(node.inputs[1])] : nullptr),
        first_(graph.values[size_t(node.outputs[0])]),
        second_(node.outputs.size() > 1 ? &graph.values[size_t(node.outputs[1])] : nullptr) {}

  size_t scratch_bytes(size_t, int) const override { return 0; }

  void run(const Call& call, Pool& pool) const override {
    const size_t rows = size_t(first_.shape.height);
    pool.each(call.images * rows, [&](size_t i) {
      const size_t image = i / rows;
      scalar::Operands operands;
      operands.input = tensor(&input_, call.input, image);
      operands.residual = tensor(residual_, call.residual, image);
      operands.first = tensor(&first_, call.first, image);
      operands.second = tensor(second_, call.second, image);
      scalar::run(node_, operands, int32_t(i % rows), int32_t(i % rows) + 1);
    });
  }

 private:
  static scalar::Tensor tensor(const Value* value, const void* data, size_t image) {
    scalar::Tensor tensor;
    if (!value) return tensor;
    tensor.kind = value->kind;
    tensor.shape = value->shape;
    tensor.data = const_cast<unsigned char*>(static_cast<const unsigned char*>(data)) + image * image_bytes(*value);
    return tensor;
  }

  const Node& node_;
  const Value& input_;
  const Value* residual_;
  const Value& first_;
  const Value* second_;
};

}  // namespace

std::unique_ptr<const Layer> make_layer(const Graph& graph, const Node& node, const KernelSet& kernels) {
  std::unique_ptr<const Layer> layer;
  switch (node.op) {
    case Op::kBinaryConv2d:
      layer = make_binary_layer(graph, node, kernels);
      break;
    case Op::kImageConv2d:
      layer = make_image_layer(graph, node, kernels);
      break;
    case Op::kConv2d:
      layer = make_float_layer(graph, node, kernels);
      break;
    default:
      layer = make_row_layer(graph, node, kernels);
  }
  return layer ? std::move(layer) : std::make_unique<ScalarLayer>(graph, node);
}

}  // namespace bitedge
