/* Copy `count` bits from bit `first` on; the unused bits of the last word become 0. */
static void bitedge_copy_bits(bitedge_word* to, const bitedge_word* from, int32_t first, int32_t count) {
  const int32_t shift = first & 31;
  from += first >> 5;
  for (; count > 0; count -= 32, from++) {
    uint32_t word = *from >> shift;
    if (shift && count > 32 - shift) word |= from[1] << (32 - shift);
    *to++ = count < 32 ? word & ((1u << count) - 1) : word;
  }
}

/* Line up the bits under a window that lies wholly inside, of a convolution without groups. */
static void bitedge_inner_patch(const bitedge_window* w, const bitedge_word* from, int32_t words, bitedge_word* patch) {
  const int32_t row = w->in_w * words * w->dilation_h, step = words * w->dilation_w;
  const int32_t together = w->dilation_w == 1 ? w->kernel_w * words : words, parts = w->kernel_w * words / together;
  int32_t ky, part, i;
  for (ky = 0; ky < w->kernel_h; ky++, from += row) {
    for (part = 0; part < parts; part++) {
      const bitedge_word* next = from + part * step;
      for (i = 0; i < together; i++) *patch++ = *next++;
    }
  }
}

/* Line up the bits of a group under any window; give the number of taps that are not padding. */
static int32_t bitedge_edge_patch(const bitedge_binary_conv2d_layer* layer, const bitedge_word* input, int32_t y,
                                  int32_t x, int32_t group, bitedge_word* patch, bitedge_word* mask) {
  const bitedge_window* w = &layer->window;
  const int32_t depth = w->in_c / w->groups, words = layer->words, pixel_words = (w->in_c + 31) >> 5;
  int32_t ky, kx, i, taps = 0;
  for (ky = 0; ky < w->kernel_h; ky++) {
    const int32_t row = y + ky * w->dilation_h;
    for (kx = 0; kx < w->kernel_w; kx++, patch += words) {
      const int32_t column = x + kx * w->dilation_w;
      const int32_t inside = row >= 0 && row < w->in_h && column >= 0 && column < w->in_w;
      for (i = 0; mask && i < words; i++) *mask++ = inside ? 0xffffffffu : 0;
      taps += inside;
      if (inside) {
        bitedge_copy_bits(patch, input + (row * w->in_w + column) * pixel_words, group * depth, depth);
      } else {
        for (i = 0; i < words; i++) patch[i] = layer->pad_negative ? 0xffffffffu : 0;
        if (layer->pad_negative && (depth & 31)) patch[words - 1] = (1u << (depth & 31)) - 1;
      }
    }
  }
  return taps;
}

void bitedge_binary_conv2d(const bitedge_binary_conv2d_layer* layer, const bitedge_word* input, const bitedge_io* io) {
  const bitedge_window* w = &layer->window;
  const int32_t n = w->kernel_h * w->kernel_w * layer->words, depth = w->in_c / w->groups;
  const int32_t outputs = w->out_c / w->groups, all_taps = w->kernel_h * w->kernel_w;
  const int32_t last_y = w->in_h - 1 - (w->kernel_h - 1) * w->dilation_h;
  const int32_t last_x = w->in_w - 1 - (w->kernel_w - 1) * w->dilation_w;
  bitedge_word* const patch = (bitedge_word*)io->scratch;
  bitedge_word* const mask = layer->edge_dots ? patch + n : 0;
  bitedge_place place = {0, 0, 0, w->out_c, io->inputs};
  bitedge_sums sums;
  int32_t oy, ox, group, done;
  for (oy = 0; oy < w->out_h; oy++) {
    const int32_t y = oy * w->stride_h - w->pad_top;
    for (ox = 0; ox < w->out_w; ox++, place.pixel++) {
      const int32_t x = ox * w->stride_w - w->pad_left;
      const int32_t inner = w->groups == 1 && y >= 0 && x >= 0 && y <= last_y && x <= last_x;
      const bitedge_word* weights = layer->weights;
      place.first = 0;
      for (group = 0; group < w->groups; group++) {
        bitedge_dots* dots = layer->dots;
        int32_t taps = all_taps;
        if (inner) {
          bitedge_inner_patch(w, input + (y * w->in_w + x) * layer->words, layer->words, patch);
        } else {
          const int32_t inside = bitedge_edge_patch(layer, input, y, x, group, patch, mask);
          if (mask && inside < all_taps) dots = layer->edge_dots, taps = inside;
        }
        for (done = 0; done < outputs; done += place.count, place.first += place.count) {
          const int32_t left = outputs - done, count = left < BITEDGE_BLOCK ? left : BITEDGE_BLOCK;
          const int32_t quads = (count + 3) >> 2;
          place.count = count;
          dots(patch, mask, weights, quads, taps * depth, sums.sum);
          weights += 4 * n * quads;
          layer->epilogue.finish(&layer->epilogue, &sums, &place, io->floats, io->bits);
        }
      }
    }
  }
}
