#include "base/cpu.h"

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#elif (defined(__aarch64__) || defined(__arm__)) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace bitedge {
namespace {

#if defined(__x86_64__) || defined(__i386__)
// Which register states the operating system saves (XCR0); by instruction bytes, since this file has no ISA flags.
uint64_t saved_states() {
  uint32_t low, high;
  __asm__(".byte 0x0f, 0x01, 0xd0" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t(high) << 32 | low;
}

uint32_t find() {
  uint32_t a, b, c, d, found = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
  const auto bit = [](uint32_t word, int i) { return ((word >> i) & 1) != 0; };
  const bool sse42 = bit(c, 20), fma = bit(c, 12), popcnt = bit(c, 23), osxsave = bit(c, 27), avx = bit(c, 28),
             f16c = bit(c, 29);
  if (sse42 && popcnt) found |= kSse42;
  if (!osxsave || !avx) return found;
  constexpr uint64_t kYmm = 0x6, kZmm = 0xe6;  // SSE and AVX states; with opmask, upper halves, upper registers
  const uint64_t states = saved_states();
  if ((states & kYmm) != kYmm || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return found;
  if (bit(b, 5) && fma && f16c && popcnt) found |= kAvx2;
  const bool f = bit(b, 16), dq = bit(b, 17), bw = bit(b, 30), vl = bit(b, 31);
  if ((states & kZmm) != kZmm || !(found & kAvx2) || !f || !dq || !bw || !vl) return found;
  found |= kAvx512;
  if (bit(c, 11)) found |= kAvx512Vnni;
  if (bit(c, 14)) found |= kAvx512Vpopcntdq;
  return found;
}
#elif defined(__aarch64__)
uint32_t find() {
  uint32_t found = kNeon;  // part of Armv8.0
#if defined(__linux__)
  constexpr unsigned long kHwcapAsimdDp = 1ul << 20;
  if (getauxval(AT_HWCAP) & kHwcapAsimdDp) found |= kNeonDot;
#elif defined(__ARM_FEATURE_DOTPROD)
  found |= kNeonDot;
#endif
  return found;
}
#elif defined(__arm__) && defined(__linux__)
uint32_t find() {
  constexpr unsigned long kHwcapNeonAndVfpv4 = 1ul << 12 | 1ul << 16;
  return (getauxval(AT_HWCAP) & kHwcapNeonAndVfpv4) == kHwcapNeonAndVfpv4 ? uint32_t(kNeon) : 0;
}
#else
uint32_t find() { return 0; }
#endif

}  // namespace

uint32_t cpu_features() {
  static const uint32_t features = find();
  return features;
}

std::string cpu_feature_names() {
  constexpr struct {
    uint32_t bit;
    const char* name;
  } kNames[] = {{kAvx2, "avx2"},
                {kAvx512, "avx512"},
                {kAvx512Vnni, "avx512vnni"},
                {kAvx512Vpopcntdq, "avx512vpopcntdq"},
                {kNeon, "neon"},
                {kNeonDot, "neondot"},
                {kSse42, "sse42"}};
  std::string names;
  for (const auto& feature : kNames) {
    if (cpu_features() & feature.bit) names += (names.empty() ? "" : " ") + std::string(feature.name);
  }
  return names;
}

}  // namespace bitedge
