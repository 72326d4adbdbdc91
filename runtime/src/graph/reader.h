// From the bytes of a packed model to its checked graph and its metadata. docs/format.md is the specification.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace bitedge {

constexpr uint32_t kFormatVersion = 2;

struct Golden {
  uint32_t count = 0;
  uint64_t seed = 0;
  View<float> output;  // [count, outputs]
};

// Everything in the file that is not needed to compute.
struct Metadata {
  uint32_t format_version = 0;
  std::string sha256;
  std::vector<std::string> labels;             // none, or one per output
  std::string preprocessing, training;         // JSON objects, or empty
  std::map<std::string, std::string> entries;  // all keys but the nodes' and the labels, their values as JSON
  Golden golden;
  std::vector<uint64_t> node_bytes;  // bytes of each node's tensors in the file
  uint64_t file_bytes = 0;
};

struct Packed {
  Graph graph;
  Metadata metadata;
};

// Reads the file at `data`, which must be aligned to 32 bytes and outlive the result. Throws Error{kFormat, kVersion,
// kChecksum} with one message per defect. Without the checksum a fuzzer gets past the first check.
Packed read_packed(const uint8_t* data, size_t size, bool verify_checksum = true);

}  // namespace bitedge
