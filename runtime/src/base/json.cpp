#include "base/json.h"

#include <cstdio>

#include "base/budget.h"

namespace bitedge {
namespace {

// Recursive descent over the grammar; only yes or no.
class Checker {
 public:
  explicit Checker(std::string_view text) : text_(text) {}

  bool object_only() {
    space();
    const bool ok = peek() == '{' && value(0);
    space();
    return ok && at_ == text_.size();
  }

 private:
  static constexpr int kDeepest = 64;

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(char c) { return peek() == c && c != '\0' ? (++at_, true) : false; }
  bool word(std::string_view w) { return text_.substr(at_, w.size()) == w ? (at_ += w.size(), true) : false; }
  void space() {
    while (peek() == ' ' || peek() == '\t' || peek() == '\n' || peek() == '\r') ++at_;
  }
  bool digits() {
    const size_t start = at_;
    while (peek() >= '0' && peek() <= '9') ++at_;
    return at_ > start;
  }

  bool number() {
    take('-');
    if (!take('0') && !digits()) return false;
    if (take('.') && !digits()) return false;
    if (take('e') || take('E')) {
      if (!take('+')) take('-');
      return digits();
    }
    return true;
  }

  bool hex4() {
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = peek();
      if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'))) return false;
    }
    return true;
  }

  bool string() {
    if (!take('"')) return false;
    while (at_ < text_.size() && static_cast<unsigned char>(peek()) >= 0x20) {
      if (take('"')) return true;
      if (!take('\\')) {
        ++at_;
      } else if (take('u')) {
        if (!hex4()) return false;
      } else if (std::string_view("\"\\/bfnrt").find(peek()) == std::string_view::npos || peek() == '\0') {
        return false;
      } else {
        ++at_;
      }
    }
    return false;
  }

  bool value(int depth) {
    if (depth > kDeepest) return false;
    space();
    switch (peek()) {
      case '{':
        return members(depth, '}', true);
      case '[':
        return members(depth, ']', false);
      case '"':
        return string();
      case 't':
        return word("true");
      case 'f':
        return word("false");
      case 'n':
        return word("null");
      default:
        return number();
    }
  }

  bool members(int depth, char end, bool keyed) {
    ++at_;
    space();
    if (take(end)) return true;
    do {
      if (keyed) {
        space();
        if (!string()) return false;
        space();
        if (!take(':')) return false;
      }
      if (!value(depth + 1)) return false;
      space();
    } while (take(','));
    return take(end);
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

bool is_json_object(std::string_view text) { return Checker(text).object_only(); }

void JsonWriter::comma() {
  const char last = text_.empty() ? '[' : text_.back();
  if (last != '[' && last != '{' && last != ':') text_ += ',';
}

void JsonWriter::quote(std::string_view text) {
  Budget::charge(text.size() + 2);
  text_ += '"';
  for (char c : text) {
    if (c == '"' || c == '\\') {
      text_ += '\\';
      text_ += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", c);
      text_ += escape;
    } else {
      text_ += c;
    }
  }
  text_ += '"';
}

JsonWriter& JsonWriter::open(char bracket) {
  comma();
  text_ += bracket;
  return *this;
}

JsonWriter& JsonWriter::close(char bracket) {
  text_ += bracket;
  return *this;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  comma();
  quote(name);
  text_ += ':';
  return *this;
}

JsonWriter& JsonWriter::string(std::string_view text) {
  comma();
  quote(text);
  return *this;
}

JsonWriter& JsonWriter::number(uint64_t value) { return raw(std::to_string(value)); }
JsonWriter& JsonWriter::integer(int64_t value) { return raw(std::to_string(value)); }
JsonWriter& JsonWriter::boolean(bool value) { return raw(value ? "true" : "false"); }

JsonWriter& JsonWriter::raw(std::string_view json) {
  comma();
  Budget::charge(json.size());
  text_ += json;
  return *this;
}

}  // namespace bitedge
