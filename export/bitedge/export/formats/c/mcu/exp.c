/* exp(x): 2 to a whole power, times a polynomial on [-ln(2)/2, ln(2)/2]. */
static float bitedge_exp(float x) {
  float whole, rest, power;
  uint32_t bits;
  int32_t n;
  if (x > 88.7f) x = 88.7f;
  if (x < -87.3f) return 0;
  whole = x * 1.44269504f;
  n = (int32_t)(whole < 0 ? whole - 0.5f : whole + 0.5f);
  rest = bitedge_fma((float)n, -0.693145751953125f, x);
  rest = bitedge_fma((float)n, -1.42860677e-6f, rest);
  power = 1 + rest * (1 + rest * (0.5f + rest * (0.166666667f +
                                                 rest * (0.0416666667f +
                                                         rest * (8.33333333e-3f +
                                                                 rest * (1.38888889e-3f + rest * 1.98412698e-4f))))));
  /* In two factors, since 2^128 is not a float. */
  bits = (uint32_t)(127 + n / 2) << 23;
  memcpy(&whole, &bits, sizeof whole);
  bits = (uint32_t)(127 + n - n / 2) << 23;
  memcpy(&rest, &bits, sizeof rest);
  return power * whole * rest;
}
