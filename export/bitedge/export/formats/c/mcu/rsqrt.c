/* 1 / sqrt(x) for a positive x: Newton's method from a guess by the exponent. */
static float bitedge_rsqrt(float x) {
  uint32_t bits;
  float guess;
  int32_t i;
  memcpy(&bits, &x, sizeof bits);
  bits = 0x5f375a86u - (bits >> 1);
  memcpy(&guess, &bits, sizeof guess);
  for (i = 0; i < 4; i++) guess *= 1.5f - 0.5f * x * guess * guess;
  return guess;
}
