// JSON, as far as the core needs it: check a text, write a text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace bitedge {

// Whether the text is one JSON object (RFC 8259), nested at most 64 deep.
bool is_json_object(std::string_view text);

// Writes JSON from left to right; commas come by themselves.
class JsonWriter {
 public:
  JsonWriter& open(char bracket);  // '{' or '['
  JsonWriter& close(char bracket);
  JsonWriter& key(std::string_view name);
  JsonWriter& string(std::string_view text);
  JsonWriter& number(uint64_t value);
  JsonWriter& integer(int64_t value);
  JsonWriter& boolean(bool value);
  JsonWriter& raw(std::string_view json);  // already JSON
  JsonWriter& null() { return raw("null"); }

  const std::string& text() const { return text_; }

 private:
  void comma();
  void quote(std::string_view text);

  std::string text_;
};

}  // namespace bitedge
