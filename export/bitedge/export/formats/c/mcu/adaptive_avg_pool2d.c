void bitedge_adaptive_avg_pool2d(const bitedge_window* w, const float* in, float* out) {
  int32_t oy, ox, c, row, column;
  for (oy = 0; oy < w->out_h; oy++) {
    const int32_t top = oy * w->in_h / w->out_h, bottom = ((oy + 1) * w->in_h + w->out_h - 1) / w->out_h;
    for (ox = 0; ox < w->out_w; ox++) {
      const int32_t left = ox * w->in_w / w->out_w, right = ((ox + 1) * w->in_w + w->out_w - 1) / w->out_w;
      for (c = 0; c < w->in_c; c++) {
        float sum = 0;
        for (row = top; row < bottom; row++) {
          for (column = left; column < right; column++) sum += in[(row * w->in_w + column) * w->in_c + c];
        }
        *out++ = sum / (float)((bottom - top) * (right - left));
      }
    }
  }
}
