/* x * y + z with one rounding. */
#if defined(__FP_FAST_FMAF) || defined(__ARM_FEATURE_FMA) || defined(__FMA__)
float bitedge_fma(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
#else
typedef struct {
  uint64_t digits; /* 24 bits, the highest set, or 0 */
  int32_t exponent, negative;
} bitedge_parts;

static bitedge_parts bitedge_take_apart(float x) {
  bitedge_parts parts;
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  parts.negative = (int32_t)(bits >> 31);
  parts.exponent = (int32_t)(bits >> 23 & 0xff);
  parts.digits = bits & 0x7fffff;
  if (parts.exponent) {
    parts.digits |= 0x800000;
  } else {
    parts.exponent = 1;
  }
  while (parts.digits && !(parts.digits >> 23)) parts.digits <<= 1, parts.exponent--;
  parts.exponent -= 150;
  return parts;
}

/* Shift right; a lost bit is kept as the last one, so that rounding still sees it. */
static uint64_t bitedge_shift_right(uint64_t x, int32_t by) {
  if (by > 63) return x != 0;
  return (x >> by) | ((x & (((uint64_t)1 << by) - 1)) != 0);
}

/* Both terms are brought to 62 bits, where no sum of theirs loses more than what only breaks a tie. */
float bitedge_fma(float x, float y, float z) {
  const bitedge_parts px = bitedge_take_apart(x), py = bitedge_take_apart(y), pz = bitedge_take_apart(z);
  uint64_t product = (px.digits * py.digits) << 14, sum = pz.digits << 38;
  int32_t product_exponent = px.exponent + py.exponent - 14, exponent = pz.exponent - 38, biased;
  uint32_t negative = (uint32_t)pz.negative, bits;
  const uint32_t product_negative = (uint32_t)(px.negative ^ py.negative);
  float result;
  /* A zero term, an infinity or a NaN: the plain expression rounds once, too. */
  if (!product || !sum || px.exponent > 104 || py.exponent > 104 || pz.exponent > 104) return x * y + z;
  if (product_exponent > exponent) {
    sum = bitedge_shift_right(sum, product_exponent - exponent);
    exponent = product_exponent;
  } else {
    product = bitedge_shift_right(product, exponent - product_exponent);
  }
  if (negative == product_negative) {
    sum += product;
  } else if (sum >= product) {
    sum -= product;
  } else {
    sum = product - sum;
    negative = product_negative;
  }
  if (!sum) return 0.0f;
  while (!(sum >> 62)) sum <<= 1, exponent--;
  biased = exponent + 62 + 127;
  if (biased < 1) {
    sum = bitedge_shift_right(sum, 1 - biased);
    biased = sum >> 62 ? 1 : 0;
  }
  bits = (uint32_t)(sum >> 39);
  sum &= ((uint64_t)1 << 39) - 1;
  bits += sum > (uint64_t)1 << 38 || (sum == (uint64_t)1 << 38 && (bits & 1));
  /* A carry out of the digits raises the exponent by itself. */
  bits = biased > 0 ? bits + ((uint32_t)(biased - 1) << 23) : bits;
  if (bits >= 0x7f800000u) bits = 0x7f800000u;
  bits |= negative << 31;
  memcpy(&result, &bits, sizeof result);
  return result;
}
#endif
