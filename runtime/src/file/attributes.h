// Typed access to the key-values of a file. Each getter refuses a wrong type by name; keys that nobody asked for
// can be listed afterwards, so that an unknown attribute of a node is never ignored in silence.
#pragma once

#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "file/gguf.h"

namespace bitedge {

class Attributes {
 public:
  explicit Attributes(const gguf::File& file) : file_(file) {}

  bool has(const std::string& key) const { return file_.keys.count(key) != 0; }

  std::string_view string(const std::string& key);
  std::string_view string_or(const std::string& key, std::string_view fallback);
  std::vector<std::string_view> strings(const std::string& key);
  uint32_t u32(const std::string& key);
  uint64_t u64(const std::string& key);
  int32_t i32(const std::string& key);
  float f32(const std::string& key);
  bool boolean(const std::string& key);
  std::vector<uint32_t> u32s(const std::string& key);
  std::vector<uint32_t> u32s(const std::string& key, size_t count);  // exactly so many

  // Refuses the file if it has a key of this prefix that no getter read.
  void refuse_unread(std::string_view prefix) const;

 private:
  const gguf::KeyValue& get(const std::string& key, gguf::Type type, bool array);
  template <typename T>
  T scalar(const std::string& key, gguf::Type type);

  const gguf::File& file_;
  std::unordered_set<std::string> read_;
};

}  // namespace bitedge
