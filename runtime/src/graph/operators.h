// The one table of operators: everything that the core has to know about an operator is in its row.
//
// The table is in layers/operators.cpp, which sees all that the rows point to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "graph/graph.h"

namespace bitedge {

class Inference;
class JsonWriter;
class Layer;
struct KernelSet;
namespace scalar {
class Operands;
}

struct Operator {
  static constexpr size_t kAny = size_t(-1);

  Op op;
  const char* name;
  uint32_t version;  // of the format that has it first
  size_t least_inputs, most_inputs;
  // Reads attributes and tensors, refuses what breaks a rule, and adds the outputs.
  void (*infer)(Inference&);
  // The layer for a set of kernels; null when they do not cover this node, which then runs by the reference.
  std::unique_ptr<const Layer> (*make_layer)(const Graph&, const Node&, const KernelSet&);
  // Rows [begin, end) of the output for one image.
  void (*reference)(const Node&, const scalar::Operands&, int32_t begin, int32_t end);
  // Members of its own in a model's description; or null.
  void (*describe)(JsonWriter&, const Node&);
};

const Operator& operator_of(Op op);
const Operator* find_operator(std::string_view name);  // null: there is none

inline const char* op_name(Op op) { return operator_of(op).name; }

}  // namespace bitedge
