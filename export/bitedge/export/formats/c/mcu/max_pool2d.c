void bitedge_max_pool2d(const bitedge_window* w, const float* in, float* out) {
  int32_t oy, ox, c, ky, kx;
  for (oy = 0; oy < w->out_h; oy++) {
    for (ox = 0; ox < w->out_w; ox++) {
      for (c = 0; c < w->in_c; c++) {
        float largest = 0;
        int32_t found = 0;
        for (ky = 0; ky < w->kernel_h; ky++) {
          const int32_t row = oy * w->stride_h - w->pad_top + ky * w->dilation_h;
          if (row < 0 || row >= w->in_h) continue;
          for (kx = 0; kx < w->kernel_w; kx++) {
            const int32_t column = ox * w->stride_w - w->pad_left + kx * w->dilation_w;
            if (column < 0 || column >= w->in_w) continue;
            const float y = in[(row * w->in_w + column) * w->in_c + c];
            if (!found || y > largest) largest = y;
            found = 1;
          }
        }
        *out++ = largest;
      }
    }
  }
}
