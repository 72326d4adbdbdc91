// The fused multiply-add of the portable vectors, which most machines compute in double, against the C library's.
#include <cmath>
#include <cstring>
#include <random>

#include "check.h"
#include "kernels/vector_portable.h"

using namespace bitedge;
using namespace bitedge::testing;

namespace {

uint32_t bits_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

float float_of(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

// Sixteen lanes at a time: whether all of them agree.
bool agrees(const float* x, const float* y, const float* z) {
  float out[16];
  f_store(out, f_fma(f_load(x), f_load(y), f_load(z)));
  for (int i = 0; i < 16; i++) {
    const float expected = std::fma(x[i], y[i], z[i]);
    if (bits_of(out[i]) == bits_of(expected) || (std::isnan(out[i]) && std::isnan(expected))) continue;
    fail(__FILE__, __LINE__,
         "fma of the floats with bits " + std::to_string(bits_of(x[i])) + ", " + std::to_string(bits_of(y[i])) + ", " +
             std::to_string(bits_of(z[i])) + " has bits " + std::to_string(bits_of(out[i])) + ", expected " +
             std::to_string(bits_of(expected)));
    return false;
  }
  return true;
}

// What double rounding gets wrong: (1 ± a)(1 ± a), with a small, is added to z such that it lies near the middle
// between two floats, `unit` apart. z is at least
// `least` units.
void sums_between_two_floats(uint32_t seed, int unit, int32_t least) {
  std::mt19937 random(seed);
  for (int turn = 0; turn < 20000; turn++) {
    float x[16], y[16], z[16];
    for (int i = 0; i < 16; i++) {
      const float a = std::ldexp(1.0f, -12 - int(random() % 12));
      x[i] = std::ldexp(1.0f + (random() % 2 ? a : -a), (unit - 1) / 2);
      y[i] = std::ldexp(1.0f + (random() % 2 ? a : -a), unit - 1 - (unit - 1) / 2);
      z[i] = std::ldexp(float(least + int32_t(random() % (1 << 23))), unit) * (random() % 2 ? 1.0f : -1.0f);
    }
    if (!agrees(x, y, z)) return;
  }
}

}  // namespace

TEST(fma_of_any_floats) {
  std::mt19937 random(20240701);
  for (int turn = 0; turn < 20000; turn++) {
    float x[16], y[16], z[16];
    for (int i = 0; i < 16; i++) {
      x[i] = float_of(random());
      y[i] = float_of(random());
      z[i] = float_of(random());
    }
    if (!agrees(x, y, z)) return;
  }
}

TEST(fma_of_sums_between_two_floats) { sums_between_two_floats(20240702, -20, 1 << 23); }

TEST(fma_of_sums_between_two_subnormal_floats) { sums_between_two_floats(20240703, -149, 0); }
