#include <initializer_list>

#include "api/model.h"
#include "base/json.h"
#include "graph/infer.h"
#include "graph/operators.h"
#include "kernels/kernels.h"

namespace bitedge {
namespace {

const Value& value_at(const Graph& graph, int32_t index) { return graph.values[static_cast<size_t>(index)]; }

void numbers(JsonWriter& json, const char* key, std::initializer_list<int32_t> list) {
  json.key(key).open('[');
  for (int32_t number : list) json.integer(number);
  json.close(']');
}

void value_members(JsonWriter& json, const Value& value) {
  json.key("name").string(value.name).key("kind").string(kind_name(value.kind));
  numbers(json, "shape", {value.shape.height, value.shape.width, value.shape.channels});
}

void node_members(JsonWriter& json, const Graph& graph, const Node& node) {
  json.key("op").string(op_name(node.op));
  json.key("name").string(value_at(graph, node.outputs[0]).name);
  for (const auto& [key, indices] : {std::pair("inputs", &node.inputs), std::pair("outputs", &node.outputs)}) {
    json.key(key).open('[');
    for (int32_t index : *indices) json.string(value_at(graph, index).name);
    json.close(']');
  }
  if (const auto members = operator_of(node.op).describe) members(json, node);
  json.key("macs").number(node_macs(graph, node));
}

void optional_json(JsonWriter& json, const char* key, const std::string& text) {
  json.key(key).raw(text.empty() ? "null" : text);
}

}  // namespace

std::string describe(const Graph& graph, const Metadata& metadata, const Program& program) {
  JsonWriter json;
  json.open('{');
  json.key("name").string(graph.name);
  json.key("format_version").number(metadata.format_version);
  json.key("sha256").string(metadata.sha256);
  json.key("file_bytes").number(metadata.file_bytes);
  json.key("kernels").string(program.kernels().name);
  json.key("input").open('{');
  value_members(json, graph.values[0]);
  json.close('}').key("output").open('{');
  value_members(json, value_at(graph, graph.output));
  json.close('}').key("labels").open('[');
  for (const std::string& label : metadata.labels) json.string(label);
  json.close(']');
  optional_json(json, "preprocessing", metadata.preprocessing);
  optional_json(json, "training", metadata.training);
  json.key("metadata").open('{');
  for (const auto& [key, value] : metadata.entries) json.key(key).raw(value);
  json.close('}');
  json.key("golden").open('{').key("count").number(metadata.golden.count);
  json.key("seed").number(metadata.golden.seed).close('}');
  json.key("values").open('[');
  for (const Value& value : graph.values) {
    json.open('{');
    value_members(json, value);
    json.close('}');
  }
  json.close(']').key("nodes").open('[');
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    json.open('{').key("index").number(i);
    node_members(json, graph, graph.nodes[i]);
    json.key("bytes").number(metadata.node_bytes[i]).key("kernel").string(program.node_kernel(i)).close('}');
  }
  json.close(']').close('}');
  return json.text();
}

}  // namespace bitedge
