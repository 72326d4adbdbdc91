#include "file/attributes.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/text.h"

namespace bitedge {

using gguf::Type;

const gguf::KeyValue& Attributes::get(const std::string& key, Type type, bool array) {
  const auto found = file_.keys.find(key);
  if (found == file_.keys.end()) throw Error(Status::kFormat, join("the key ", quoted(key), " is missing"));
  read_.insert(key);
  const gguf::KeyValue& value = found->second;
  if (value.type != type || value.array != array) {
    throw Error(Status::kFormat, join("the key ", quoted(key), " is ", value.type_text(), ", expected ",
                                      gguf::type_name(type), array ? "[]" : ""));
  }
  return value;
}

template <typename T>
T Attributes::scalar(const std::string& key, Type type) {
  T value;
  std::memcpy(&value, get(key, type, false).data, sizeof value);
  return value;
}

std::string_view Attributes::string(const std::string& key) { return get(key, Type::kString, false).strings[0]; }

std::string_view Attributes::string_or(const std::string& key, std::string_view fallback) {
  return has(key) ? string(key) : fallback;
}

std::vector<std::string_view> Attributes::strings(const std::string& key) {
  return get(key, Type::kString, true).strings;
}

uint32_t Attributes::u32(const std::string& key) { return scalar<uint32_t>(key, Type::kU32); }
uint64_t Attributes::u64(const std::string& key) { return scalar<uint64_t>(key, Type::kU64); }
int32_t Attributes::i32(const std::string& key) { return scalar<int32_t>(key, Type::kI32); }
float Attributes::f32(const std::string& key) { return scalar<float>(key, Type::kF32); }
bool Attributes::boolean(const std::string& key) { return scalar<uint8_t>(key, Type::kBool) != 0; }

std::vector<uint32_t> Attributes::u32s(const std::string& key) {
  const gguf::KeyValue& value = get(key, Type::kU32, true);
  std::vector<uint32_t> numbers(value.count);
  if (value.count > 0) std::memcpy(numbers.data(), value.data, value.count * sizeof(uint32_t));
  return numbers;
}

std::vector<uint32_t> Attributes::u32s(const std::string& key, size_t count) {
  std::vector<uint32_t> numbers = u32s(key);
  if (numbers.size() != count) {
    throw Error(Status::kFormat, join("the key ", quoted(key), " has ", numbers.size(), " elements, expected ", count));
  }
  return numbers;
}

void Attributes::refuse_unread(std::string_view prefix) const {
  std::vector<std::string> unread;
  for (const auto& [key, value] : file_.keys) {
    const std::string name(key);
    if (key.substr(0, prefix.size()) == prefix && read_.count(name) == 0) unread.push_back(name);
  }
  if (unread.empty()) return;
  const auto first = std::min_element(unread.begin(), unread.end());  // the map has no order; the message has
  throw Error(Status::kFormat, join("the key ", quoted(*first), " belongs to no node, or not to its operator"));
}

}  // namespace bitedge
