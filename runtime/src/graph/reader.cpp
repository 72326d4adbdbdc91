#include "graph/reader.h"

#include <unordered_set>

#include "base/error.h"
#include "base/json.h"
#include "base/sha256.h"
#include "base/text.h"
#include "file/attributes.h"
#include "file/gguf.h"
#include "file/limits.h"
#include "file/tensors.h"
#include "graph/infer.h"

namespace bitedge {
namespace {

constexpr std::string_view kNodeKeys = "bitedge.node.";

template <typename... T>
[[noreturn]] void refuse(const T&... parts) {
  throw Error(Status::kFormat, join(parts...));
}

void check_architecture(Attributes& keys) {
  const std::string_view architecture = keys.string("general.architecture");
  if (architecture != "bitedge") {
    refuse("a GGUF file of the architecture ", quoted(architecture), ", expected 'bitedge'");
  }
}

uint32_t check_version(Attributes& keys) {
  const uint32_t version = keys.u32("bitedge.format_version");
  if (version > kFormatVersion) {
    throw Error(Status::kVersion, join("format version ", version, " is newer than ", kFormatVersion,
                                       ", the newest that this bitedge reads: update bitedge"));
  }
  if (version == 0) refuse("format version 0 does not exist");
  return version;
}

std::string check_sha256(Attributes& keys, const uint8_t* data, size_t size, bool verify) {
  const std::string_view stored = keys.string("bitedge.sha256");
  constexpr size_t kDigits = 64;
  if (stored.size() != kDigits || stored.find_first_not_of("0123456789abcdef") != stored.npos) {
    refuse("the key 'bitedge.sha256' is not 64 lower-case hexadecimal digits");
  }
  if (!verify) return std::string(stored);
  const size_t position = static_cast<size_t>(reinterpret_cast<const uint8_t*>(stored.data()) - data);
  Sha256 hash;
  hash.update(data, position);
  hash.update(std::string(kDigits, '0').data(), kDigits);
  hash.update(data + position + kDigits, size - position - kDigits);
  const std::string computed = hash.hex();
  if (computed != stored) {
    throw Error(Status::kChecksum, join("damaged: its SHA-256 is ", computed.substr(0, 16), "..., the file says ",
                                        stored.substr(0, 16), "...: copy or export it again"));
  }
  return computed;
}

Value read_input(Attributes& keys) {
  Value input;
  const std::string_view kind = keys.string("bitedge.input.kind");
  if (kind == "uint8") {
    input.kind = Kind::kUint8;
  } else if (kind == "float32") {
    input.kind = Kind::kFloat;
  } else {
    refuse("the key 'bitedge.input.kind' is ", quoted(kind), ", expected 'uint8' or 'float32'");
  }
  input.name = std::string(keys.string("bitedge.input.name"));
  const std::vector<uint32_t> shape = keys.u32s("bitedge.input.shape", 3);
  uint64_t elements = 1;
  for (uint32_t extent : shape) {
    if (extent == 0) refuse("the key 'bitedge.input.shape' has a dimension of size 0");
    elements *= extent;
    if (elements > limits::kValueElements) {
      refuse("the input of ", shape[0], " x ", shape[1], " x ", shape[2], " has more than ", limits::kValueElements,
             " elements");
    }
  }
  input.shape = {static_cast<int32_t>(shape[0]), static_cast<int32_t>(shape[1]), static_cast<int32_t>(shape[2])};
  return input;
}

void check_names(const Graph& graph) {
  std::unordered_set<std::string_view> names;
  for (const Value& value : graph.values) {
    if (value.name.empty()) refuse("a value has an empty name");
    if (!names.insert(value.name).second) refuse("two values have the name ", quoted(value.name));
  }
}

Graph read_graph(Attributes& keys, Tensors& tensors, Metadata& metadata) {
  Graph graph;
  graph.name = std::string(keys.string("general.name"));
  graph.values.push_back(read_input(keys));
  const uint32_t nodes = keys.u32("bitedge.graph.nodes");
  if (nodes == 0 || nodes > limits::kNodes) refuse(nodes, " nodes, expected 1 to ", limits::kNodes);
  for (uint32_t i = 0; i < nodes; ++i) {
    infer_node(graph, metadata.format_version, i, keys, tensors);
    metadata.node_bytes.push_back(tensors.take_bytes());
  }
  keys.refuse_unread(kNodeKeys);
  tensors.refuse_unread("node.");
  check_names(graph);
  const uint32_t output = keys.u32("bitedge.graph.output");
  if (output == 0 || output >= graph.values.size()) {
    refuse("the key 'bitedge.graph.output' is ", output, ", expected a value that a node makes");
  }
  const Value& answer = graph.values[output];
  if (answer.kind != Kind::kFloat) {
    refuse("the output ", quoted(answer.name), " is ", kind_name(answer.kind), ", expected float32");
  }
  graph.output = static_cast<int32_t>(output);
  return graph;
}

std::vector<std::string> read_labels(Attributes& keys, size_t outputs) {
  if (!keys.has("bitedge.labels")) return {};
  const std::vector<std::string_view> labels = keys.strings("bitedge.labels");
  if (labels.size() != outputs) refuse(labels.size(), " labels for ", outputs, " outputs");
  return {labels.begin(), labels.end()};
}

std::string read_json(Attributes& keys, const char* key) {
  if (!keys.has(key)) return {};
  const std::string_view text = keys.string(key);
  if (!is_json_object(text)) refuse("the key ", quoted(key), " is not a JSON object");
  return std::string(text);
}

std::map<std::string, std::string> read_entries(const gguf::File& file) {
  std::map<std::string, std::string> entries;
  for (const auto& [key, value] : file.keys) {
    if (key == "bitedge.labels" || key.substr(0, kNodeKeys.size()) == kNodeKeys) continue;
    entries.emplace(key, gguf::to_json(value));
  }
  return entries;
}

Golden read_golden(Attributes& keys, Tensors& tensors, size_t outputs) {
  Golden golden;
  const bool count = keys.has("bitedge.golden.count"), seed = keys.has("bitedge.golden.seed");
  const bool output = tensors.has("golden.output");
  if (!count && !seed && !output) return golden;
  if (!count || !seed || !output) {
    refuse("golden vectors need all of 'bitedge.golden.count', 'bitedge.golden.seed' and 'golden.output'");
  }
  golden.count = keys.u32("bitedge.golden.count");
  golden.seed = keys.u64("bitedge.golden.seed");
  golden.output = tensors.f32("golden.output", {golden.count, outputs});
  return golden;
}

}  // namespace

Packed read_packed(const uint8_t* data, size_t size, bool verify_checksum) {
  gguf::File file = gguf::parse_keys(data, size);
  Attributes keys(file);
  check_architecture(keys);
  Packed packed;
  Metadata& metadata = packed.metadata;
  metadata.file_bytes = size;
  metadata.format_version = check_version(keys);
  gguf::parse_tensors(file);
  metadata.sha256 = check_sha256(keys, data, size, verify_checksum);
  Tensors tensors(file);
  packed.graph = read_graph(keys, tensors, metadata);
  const size_t outputs = packed.graph.values[static_cast<size_t>(packed.graph.output)].shape.elements();
  metadata.labels = read_labels(keys, outputs);
  metadata.preprocessing = read_json(keys, "bitedge.preprocessing");
  metadata.training = read_json(keys, "bitedge.training");
  metadata.entries = read_entries(file);
  metadata.golden = read_golden(keys, tensors, outputs);
  return packed;
}

}  // namespace bitedge
