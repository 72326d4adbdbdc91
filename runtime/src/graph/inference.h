// One node on its way from the file into the graph: what the functions of infer_operators.cpp read it with.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "file/attributes.h"
#include "file/tensors.h"
#include "graph/graph.h"

namespace bitedge {

class Inference {
 public:
  Inference(Graph& graph, uint32_t version, uint32_t index, Attributes& attributes, Tensors& tensors);

  void run();

  template <typename... T>
  [[noreturn]] void refuse(const T&... parts) const {
    throw Error(Status::kFormat, join(head(), parts...));
  }

  uint32_t version() const { return version_; }
  Node& node() { return node_; }
  const Value& input(size_t i) const { return graph_.values[static_cast<size_t>(node_.inputs[i])]; }
  size_t inputs() const { return node_.inputs.size(); }
  Kind kind() const { return input(0).kind; }
  uint64_t channels() const { return static_cast<uint64_t>(input(0).shape.channels); }
  Attributes& attributes() { return attributes_; }
  Tensors& tensors() { return tensors_; }
  std::string key(std::string_view name) const { return key_ + std::string(name); }
  std::string tensor(std::string_view name) const { return tensor_ + std::string(name); }
  bool has(std::string_view name) const { return tensors_.has(tensor(name)); }
  View<float> f32(std::string_view name, uint64_t count) { return tensors_.f32(tensor(name), {count}); }
  View<float> slope(std::string_view name, uint64_t count);  // one per channel, or one
  float eps();

  void expect_kind(bool uint8, bool floats, bool bits) const;
  void expect_size(uint64_t height, uint64_t width, uint64_t channels) const;  // at most limits::kValueElements
  void read_window(bool groups, bool dilation);
  void read_groups();
  Shape slide(uint64_t out_channels) const;
  // Every window of a pooling holds at least one real pixel.
  void expect_real_pixels(const Shape& out) const;
  // The epilogue of an output of this shape, and the values that it makes.
  void epilogue(Shape out, bool integer);
  void add_value(Kind kind, Shape shape);

 private:
  std::string head() const;
  void read_head();
  void expect_inputs(size_t least, size_t most) const;
  void affine(uint64_t channels);
  void steps(const Shape& out);
  void emit(const Shape& out);
  void expect_operand(const EpilogueStep& step, const Shape& out) const;

  Graph& graph_;
  uint32_t version_, index_;
  std::string key_, tensor_;
  Attributes& attributes_;
  Tensors& tensors_;
  Node node_;
  std::vector<std::string_view> names_;
};

}  // namespace bitedge
