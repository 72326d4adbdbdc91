void bitedge_gather_channels_bits(int32_t pixels, int32_t channels, const int32_t* index, int32_t total,
                                  const bitedge_word* in, bitedge_word* out) {
  int32_t c;
  for (; pixels > 0; pixels--, in += (channels + 31) >> 5, out += (total + 31) >> 5) {
    for (c = 0; c < total; c++) {
      if (!(c & 31)) out[c >> 5] = 0;
      out[c >> 5] |= (in[index[c] >> 5] >> (index[c] & 31) & 1) << (c & 31);
    }
  }
}
