/* Maximum of bits: -1 (bit 1) only where all are; minimum in the channels of the mask. */
void bitedge_max_pool2d_bits(const bitedge_window* w, const bitedge_word* min_channels, const bitedge_word* in,
                             bitedge_word* out) {
  const int32_t words = (w->in_c + 31) >> 5;
  int32_t oy, ox, i, ky, kx;
  for (oy = 0; oy < w->out_h; oy++) {
    for (ox = 0; ox < w->out_w; ox++) {
      for (i = 0; i < words; i++) {
        const uint32_t min = min_channels ? min_channels[i] : 0;
        uint32_t all = 0xffffffffu, any = 0;
        for (ky = 0; ky < w->kernel_h; ky++) {
          const int32_t row = oy * w->stride_h - w->pad_top + ky * w->dilation_h;
          if (row < 0 || row >= w->in_h) continue;
          for (kx = 0; kx < w->kernel_w; kx++) {
            const int32_t column = ox * w->stride_w - w->pad_left + kx * w->dilation_w;
            if (column < 0 || column >= w->in_w) continue;
            all &= in[(row * w->in_w + column) * words + i];
            any |= in[(row * w->in_w + column) * words + i];
          }
        }
        *out++ = (all & ~min) | (any & min);
      }
    }
  }
}
