void bitedge_concat(int32_t pixels, int32_t channels, int32_t first, int32_t total, const float* in, float* out) {
  for (out += first; pixels > 0; pixels--, in += channels, out += total) {
    memcpy(out, in, (uint32_t)channels * sizeof(float));
  }
}
