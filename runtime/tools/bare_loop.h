// Yardsticks, on AVX-512 VPOPCNTDQ and on NEON. Of a binary convolution: xor, population count and add on data that is
// already laid out as a matrix, and nothing else: no windows, no padding, no epilogue. Of a float convolution: fused
// multiply-adds in registers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitedge {

bool has_bare_loop();

// out[pixel][channel] = Σ popcount(a[pixel][k] xor w[channel / 8][k][channel % 8]). `pixels` is a multiple of 4,
// `channels` of 16.
void bare_loop(const uint64_t* a, const uint64_t* w, int32_t* out, int pixels, int channels, int words);

// `rounds` times 256 of them or more; returns how many in all, sixteen lanes or four counted one by one.
double bare_fmas(int rounds);

}  // namespace bitedge
