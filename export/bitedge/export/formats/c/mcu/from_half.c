/* A float of a number in half precision; the exporter refuses infinities. */
static float bitedge_from_half(uint16_t half) {
  uint32_t bits = (uint32_t)(half & 0x8000u) << 16 | ((uint32_t)(half & 0x7fffu) << 13);
  float x;
  memcpy(&x, &bits, sizeof x);
  return x * 5.19229686e33f; /* 2^112: the exponents' offsets differ by it, and subnormals come out right */
}
