// The GGUF container: typed key-values and tensors, checked for structure only. What they mean is reader.cpp's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace bitedge::gguf {

// Value types as numbered by GGUF.
enum class Type : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

const char* type_name(Type type);

// One key-value. Strings and numbers stay in the file; `data` points at the first element.
struct KeyValue {
  Type type = Type::kU8;  // element type of an array
  bool array = false;
  uint64_t count = 1;  // elements
  const uint8_t* data = nullptr;
  std::vector<std::string_view> strings;  // when the type is string

  std::string type_text() const;  // "u32", "string[]"
};

// Tensor types that a packed model uses, as numbered by ggml.
enum class TensorType : uint32_t { kF32 = 0, kF16 = 1, kI32 = 26, kI64 = 27 };

struct Tensor {
  TensorType type = TensorType::kF32;
  std::vector<uint64_t> shape;  // outermost first
  uint64_t elements = 0;
  uint64_t bytes = 0;
  const uint8_t* data = nullptr;  // aligned to 32 bytes when the file is
};

std::string shape_text(const std::vector<uint64_t>& shape);  // "[64, 3, 3, 1]"
const char* type_name(TensorType type);

struct File {
  const uint8_t* data = nullptr;
  size_t size = 0;
  std::unordered_map<std::string_view, KeyValue> keys;
  std::unordered_map<std::string_view, Tensor> tensors;
  uint64_t tensor_count = 0;
  size_t keys_end = 0;  // where the tensors' entries start
};

// A value as JSON, for reports; numbers that are not finite become null.
std::string to_json(const KeyValue& value);

// Parses the key-values of the file in `data`, which must stay where it is as long as the result lives; then the
// tensors. In two steps, so that a GGUF file of another kind can be named as such before its tensors are looked at.
// Both throw Error{kFormat}.
File parse_keys(const uint8_t* data, size_t size);
void parse_tensors(File& file);

}  // namespace bitedge::gguf
