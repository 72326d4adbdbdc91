#include "base/sha256.h"

#include <algorithm>
#include <cstring>

#include "base/sha256_compress.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace bitedge {
namespace {

uint32_t rotate(uint32_t x, int n) { return (x >> n) | (x << (32 - n)); }

uint32_t big_endian(const uint8_t* p) {
  return uint32_t(p[0]) << 24 | uint32_t(p[1]) << 16 | uint32_t(p[2]) << 8 | uint32_t(p[3]);
}

// One round; the eight variables change places from call to call instead of being moved.
void step(uint32_t a, uint32_t b, uint32_t c, uint32_t& d, uint32_t e, uint32_t f, uint32_t g, uint32_t& h,
          uint32_t x) {
  const uint32_t first =
      h + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + ((e & f) ^ (~e & g)) + x;  // x: round constant and word
  d += first;
  h = first + (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
}

#if defined(__x86_64__)
bool cpu_has_sha() {
  uint32_t a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 9 & 1) || !(c >> 19 & 1)) return false;  // SSSE3, SSE4.1
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 29 & 1);
}
#elif defined(__aarch64__) && defined(__linux__)
bool cpu_has_sha() {
  constexpr unsigned long kHwcapSha2 = 1ul << 6;
  return (getauxval(AT_HWCAP) & kHwcapSha2) != 0;
}
#elif defined(__APPLE__) && defined(__aarch64__)
bool cpu_has_sha() { return true; }
#else
bool cpu_has_sha() { return false; }
#endif

}  // namespace

void sha256_portable(uint32_t* state, const uint8_t* blocks, size_t count) {
  for (; count > 0; --count, blocks += 64) {
    uint32_t w[64];
    for (int i = 0; i < 16; ++i) w[i] = big_endian(blocks + 4 * i);
    for (int i = 16; i < 64; ++i) {
      const uint32_t s0 = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ (w[i - 15] >> 3);
      const uint32_t s1 = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ (w[i - 2] >> 10);
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (int i = 0; i < 64; i += 8) {
      const uint32_t* k = kSha256Round + i;
      step(a, b, c, d, e, f, g, h, k[0] + w[i]);
      step(h, a, b, c, d, e, f, g, k[1] + w[i + 1]);
      step(g, h, a, b, c, d, e, f, k[2] + w[i + 2]);
      step(f, g, h, a, b, c, d, e, k[3] + w[i + 3]);
      step(e, f, g, h, a, b, c, d, k[4] + w[i + 4]);
      step(d, e, f, g, h, a, b, c, k[5] + w[i + 5]);
      step(c, d, e, f, g, h, a, b, k[6] + w[i + 6]);
      step(b, c, d, e, f, g, h, a, k[7] + w[i + 7]);
    }
    const uint32_t after[8] = {a, b, c, d, e, f, g, h};
    for (int i = 0; i < 8; ++i) state[i] += after[i];
  }
}

Sha256Compress best_sha256() {
  static const Sha256Compress best = [] {
    const Sha256Compress native = kSha256X86 ? kSha256X86 : kSha256Arm;
    return native && cpu_has_sha() ? native : sha256_portable;
  }();
  return best;
}

void Sha256::update(const void* data, size_t size) {
  const Sha256Compress compress = best_sha256();
  const auto* bytes = static_cast<const uint8_t*>(data);
  total_ += size;
  if (buffered_ > 0) {
    const size_t fill = std::min(size, sizeof buffer_ - buffered_);
    std::memcpy(buffer_ + buffered_, bytes, fill);
    buffered_ += fill;
    bytes += fill;
    size -= fill;
    if (buffered_ < sizeof buffer_) return;
    compress(state_, buffer_, 1);
  }
  compress(state_, bytes, size / 64);
  buffered_ = size % 64;
  if (buffered_ > 0) std::memcpy(buffer_, bytes + size - buffered_, buffered_);
}

std::string Sha256::hex() {
  const uint64_t bits = total_ * 8;
  const uint8_t zeros[64] = {0x80};
  update(zeros, 1 + (119 - buffered_) % 64);
  uint8_t length[8];
  for (int i = 0; i < 8; ++i) length[i] = static_cast<uint8_t>(bits >> (56 - 8 * i));
  update(length, sizeof length);
  std::string text;
  for (uint32_t word : state_) {
    for (int shift = 28; shift >= 0; shift -= 4) text += "0123456789abcdef"[word >> shift & 15];
  }
  return text;
}

}  // namespace bitedge
