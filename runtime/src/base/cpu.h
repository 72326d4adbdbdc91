// What this CPU can do and the operating system lets us use.
#pragma once

#include <cstdint>
#include <string>

namespace bitedge {

enum CpuFeature : uint32_t {
  kAvx2 = 1u << 0,    // with FMA and F16C
  kAvx512 = 1u << 1,  // F, BW, DQ, VL
  kAvx512Vnni = 1u << 2,
  kAvx512Vpopcntdq = 1u << 3,
  kNeon = 1u << 4,  // on 32-bit ARM: with VFPv4
  kNeonDot = 1u << 5,
  kSse42 = 1u << 6,  // with POPCNT
};

// A set of CpuFeature. Found once: CPUID and XGETBV on x86, the kernel's auxiliary vector on ARM.
uint32_t cpu_features();

// The same, as names separated by spaces.
std::string cpu_feature_names();

}  // namespace bitedge
