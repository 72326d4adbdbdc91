void bitedge_concat_bits(int32_t pixels, int32_t channels, int32_t first, int32_t total, const bitedge_word* in,
                         bitedge_word* out) {
  const int32_t words = (channels + 31) >> 5, shift = first & 31;
  int32_t i;
  for (; pixels > 0; pixels--, in += words, out += (total + 31) >> 5) {
    bitedge_word* to = out + (first >> 5);
    for (i = 0; i < words; i++) {
      if (!shift) {
        to[i] = in[i];
        continue;
      }
      to[i] |= in[i] << shift;
      if (channels - 32 * i > 32 - shift) to[i + 1] = in[i] >> (32 - shift);
    }
  }
}
