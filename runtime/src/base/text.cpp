#include "base/text.h"

#include <cstdint>

namespace bitedge {

std::string quoted(std::string_view text) {
  constexpr size_t kLongest = 60;
  std::string out = "'";
  for (char c : text.substr(0, kLongest)) out += c >= 0x20 && c < 0x7f ? c : '?';
  if (text.size() > kLongest) out += "...";
  return out + "'";
}

// Table 3-7 of the Unicode standard: no overlong form, no surrogate, nothing above U+10FFFF.
bool valid_utf8(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  for (size_t i = 0; i < text.size();) {
    const uint8_t lead = byte(i);
    const int length = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
    if (length == 0 || text.size() - i < static_cast<size_t>(length)) return false;
    for (int j = 1; j < length; ++j) {
      const uint8_t low = j == 1 && lead == 0xe0 ? 0xa0 : j == 1 && lead == 0xf0 ? 0x90 : 0x80;
      const uint8_t high = j == 1 && lead == 0xed ? 0x9f : j == 1 && lead == 0xf4 ? 0x8f : 0xbf;
      if (byte(i + j) < low || byte(i + j) > high) return false;
    }
    i += static_cast<size_t>(length);
  }
  return true;
}

}  // namespace bitedge
