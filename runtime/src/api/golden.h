// The generated inputs of the golden vectors (docs/format.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace bitedge {

// `count` bytes of the splitmix64 sequence of `seed`, little-endian words.
std::vector<uint8_t> golden_bytes(uint64_t seed, size_t count);

// The bytes of one image of `input`'s kind and shape.
std::vector<uint8_t> golden_input(const Value& input, uint64_t seed);

}  // namespace bitedge
