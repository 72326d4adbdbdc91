#include <cmath>
#include <cstdio>
#include <cstring>

#include "base/json.h"
#include "file/gguf.h"

namespace bitedge::gguf {
namespace {

template <typename T>
T load(const uint8_t* data, uint64_t index) {
  T number;
  std::memcpy(&number, data + index * sizeof number, sizeof number);
  return number;
}

void real(JsonWriter& json, double number, int digits) {
  char text[40];
  std::snprintf(text, sizeof text, "%.*g", digits, number);
  json.raw(std::isfinite(number) ? text : "null");
}

void element(JsonWriter& json, const KeyValue& value, uint64_t i) {
  switch (value.type) {
    case Type::kU8:
      json.number(load<uint8_t>(value.data, i));
      break;
    case Type::kI8:
      json.integer(load<int8_t>(value.data, i));
      break;
    case Type::kU16:
      json.number(load<uint16_t>(value.data, i));
      break;
    case Type::kI16:
      json.integer(load<int16_t>(value.data, i));
      break;
    case Type::kU32:
      json.number(load<uint32_t>(value.data, i));
      break;
    case Type::kI32:
      json.integer(load<int32_t>(value.data, i));
      break;
    case Type::kU64:
      json.number(load<uint64_t>(value.data, i));
      break;
    case Type::kI64:
      json.integer(load<int64_t>(value.data, i));
      break;
    case Type::kF32:
      real(json, load<float>(value.data, i), 9);
      break;
    case Type::kF64:
      real(json, load<double>(value.data, i), 17);
      break;
    case Type::kBool:
      json.boolean(value.data[i] != 0);
      break;
    case Type::kString:
      json.string(value.strings[i]);
      break;
    case Type::kArray:  // never an element: the parser refuses arrays of arrays
      json.null();
      break;
  }
}

}  // namespace

std::string to_json(const KeyValue& value) {
  JsonWriter json;
  if (value.array) json.open('[');
  for (uint64_t i = 0; i < value.count; ++i) element(json, value, i);
  if (value.array) json.close(']');
  return json.text();
}

}  // namespace bitedge::gguf
