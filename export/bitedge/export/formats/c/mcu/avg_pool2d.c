void bitedge_avg_pool2d(const bitedge_window* w, int32_t count_pads, int32_t count_h, int32_t count_w, const float* in,
                        float* out) {
  int32_t oy, ox, c, ky, kx;
  for (oy = 0; oy < w->out_h; oy++) {
    for (ox = 0; ox < w->out_w; ox++) {
      for (c = 0; c < w->in_c; c++) {
        float sum = 0;
        int32_t count = 0;
        for (ky = 0; ky < w->kernel_h; ky++) {
          const int32_t row = oy * w->stride_h - w->pad_top + ky;
          for (kx = 0; kx < w->kernel_w; kx++) {
            const int32_t column = ox * w->stride_w - w->pad_left + kx;
            const int32_t inside = row >= 0 && row < w->in_h && column >= 0 && column < w->in_w;
            if (inside) sum += in[(row * w->in_w + column) * w->in_c + c];
            count += inside || (count_pads && row + w->pad_top < count_h && column + w->pad_left < count_w);
          }
        }
        *out++ = sum / (float)count;
      }
    }
  }
}
