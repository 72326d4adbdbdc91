// One lane, in plain C++: the vocabulary of the vector headers as far as functions.inl uses it.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace bitedge {
namespace {

using Lanes = float;

inline float f_set(float x) { return x; }
inline float f_zero() { return 0.0f; }
inline float f_add(float a, float b) { return a + b; }
inline float f_sub(float a, float b) { return a - b; }
inline float f_mul(float a, float b) { return a * b; }
inline float f_div(float a, float b) { return a / b; }
inline float f_fma(float a, float b, float c) { return std::fma(a, b, c); }
inline float f_greater_of(float x, float best) { return x > best ? x : best; }
inline float f_lesser_of(float x, float best) { return x < best ? x : best; }
inline float f_if_less(float a, float b, float yes, float no) { return a < b ? yes : no; }
inline float f_round(float x) { return std::nearbyint(x); }
// For n in [-126, 127]; anything for NaN.
inline float f_power_of_two(float n) {
  const uint32_t bits = uint32_t(n == n ? int32_t(n) + 127 : 0) << 23;
  float power;
  std::memcpy(&power, &bits, sizeof power);
  return power;
}

}  // namespace
}  // namespace bitedge
