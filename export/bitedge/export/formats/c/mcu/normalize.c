void bitedge_normalize(int32_t pixels, int32_t channels, const float* scale, const float* offset, const uint8_t* in,
                       float* out) {
  int32_t c;
  for (; pixels > 0; pixels--) {
    for (c = 0; c < channels; c++) *out++ = bitedge_fma((float)*in++, scale[c], offset[c]);
  }
}
