#include "layers/layer.h"

#include "base/threads.h"
#include "graph/operators.h"
#include "kernels/kernels.h"
#include "kernels/scalar.h"

namespace bitedge {
namespace {

std::vector<const Value*> values_at(const Graph& graph, const std::vector<int32_t>& indices) {
  std::vector<const Value*> values;
  for (const int32_t i : indices) values.push_back(&graph.values[size_t(i)]);
  return values;
}

// Any node, by the reference; the threads share the rows of all images.
class ReferenceLayer final : public Layer {
 public:
  ReferenceLayer(const Graph& graph, const Node& node)
      : Layer(std::string("reference ") + op_name(node.op)),
        node_(node),
        run_(operator_of(node.op).reference),
        inputs_(values_at(graph, node.inputs)),
        outputs_(values_at(graph, node.outputs)),
        height_(outputs_[0]->shape.height),
        parts_(node.op == Op::kGroupNorm ? 1 : size_t(height_)) {}

  size_t scratch_bytes(size_t, int) const override { return 0; }

  void run(const Call& call, Pool& pool) const override {
    pool.each(call.images * parts_, [&](size_t i) {
      const scalar::Operands operands(inputs_.data(), call.inputs, outputs_.data(), call.outputs, i / parts_);
      const int32_t row = int32_t(i % parts_);
      run_(node_, operands, row, parts_ == 1 ? height_ : row + 1);
    });
  }

 private:
  const Node& node_;
  void (*run_)(const Node&, const scalar::Operands&, int32_t, int32_t);
  std::vector<const Value*> inputs_, outputs_;
  int32_t height_;
  size_t parts_;  // of an image: rows, or the whole map
};

}  // namespace

std::unique_ptr<const Layer> make_layer(const Graph& graph, const Node& node, const KernelSet& kernels) {
  std::unique_ptr<const Layer> layer = operator_of(node.op).make_layer(graph, node, kernels);
  return layer ? std::move(layer) : std::make_unique<ReferenceLayer>(graph, node);
}

}  // namespace bitedge
