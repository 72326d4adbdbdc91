void bitedge_gather_channels(int32_t pixels, int32_t channels, const int32_t* index, int32_t total, const float* in,
                             float* out) {
  int32_t c;
  for (; pixels > 0; pixels--, in += channels) {
    for (c = 0; c < total; c++) *out++ = index[c] < 0 ? 0 : in[index[c]];
  }
}
