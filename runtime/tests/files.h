// The model files of tests/data. tests/runtime/golden_inputs.py makes them, and a test there compares the bytes.
#pragma once

#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace bitedge::testing {

inline std::string data_path(const std::string& name) { return std::string(BITEDGE_TEST_DATA) + "/" + name; }

inline std::vector<uint8_t> read_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

constexpr const char* kModels[] = {"small.gguf", "image.gguf", "float.gguf"};

}  // namespace bitedge::testing
