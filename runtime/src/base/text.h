// Pieces of messages and of the description: joining, quoting, UTF-8.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>

namespace bitedge {

namespace detail {
template <typename T>
std::string piece(const T& part) {
  if constexpr (std::is_convertible_v<T, std::string_view>) {
    return std::string(std::string_view(part));
  } else {
    return std::to_string(part);
  }
}
}  // namespace detail

// One string of all the arguments: text as it is, numbers in decimal.
template <typename... T>
std::string join(const T&... parts) {
  std::string text;
  (text.append(detail::piece(parts)), ...);
  return text;
}

// The text in single quotes, cut to 60 bytes, with everything but printable ASCII replaced: a message stays one line.
std::string quoted(std::string_view text);

bool valid_utf8(std::string_view text);

}  // namespace bitedge
