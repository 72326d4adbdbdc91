/* Float convolution, padded with 0. */
void bitedge_conv2d(const bitedge_conv2d_layer* layer, const float* input, const bitedge_io* io) {
  const bitedge_window* w = &layer->window;
  const int32_t depth = w->in_c / w->groups, outputs = w->out_c / w->groups;
  bitedge_place place = {0, 0, 0, w->out_c, io->inputs};
  bitedge_sums sums;
  int32_t oy, ox, i, ky, kx, c;
  for (oy = 0; oy < w->out_h; oy++) {
    for (ox = 0; ox < w->out_w; ox++, place.pixel++) {
      const float* weights = layer->weights;
      for (place.first = 0; place.first < w->out_c; place.first += place.count) {
        place.count = w->out_c - place.first < BITEDGE_BLOCK ? w->out_c - place.first : BITEDGE_BLOCK;
        for (i = 0; i < place.count; i++) {
          const int32_t offset = (place.first + i) / outputs * depth;
          float sum = 0;
          for (ky = 0; ky < w->kernel_h; ky++) {
            const int32_t row = oy * w->stride_h - w->pad_top + ky * w->dilation_h;
            for (kx = 0; kx < w->kernel_w; kx++, weights += depth) {
              const int32_t column = ox * w->stride_w - w->pad_left + kx * w->dilation_w;
              if (row >= 0 && row < w->in_h && column >= 0 && column < w->in_w) {
                const float* from = input + (row * w->in_w + column) * w->in_c + offset;
                for (c = 0; c < depth; c++) sum += from[c] * weights[c];
              }
            }
          }
          sums.y[i] = sum;
        }
        layer->epilogue.finish(&layer->epilogue, &sums, &place, io->floats, io->bits);
      }
    }
  }
}
