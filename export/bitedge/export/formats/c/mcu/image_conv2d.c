/* Pixels against +1 and -1: sums of (2u - 255), where a padded pixel is 0.
 *
 * The 16 signed sums of every four taps are computed once for a window and looked up by every output: a byte of the
 * weights is the place of the sum among those of 16 fours. */
static void bitedge_image_sums(const bitedge_short* taps, int32_t fours, bitedge_short* sums) {
  int32_t i;
  for (; fours > 0; fours--, taps += 4) {
    const int32_t sum = taps[0] + taps[1], difference = taps[0] - taps[1];
    const int32_t above[4] = {taps[2] + taps[3], taps[3] - taps[2], taps[2] - taps[3], -taps[2] - taps[3]};
    for (i = 0; i < 4; i++, sums += 4) {
      sums[0] = (int16_t)(above[i] + sum);
      sums[1] = (int16_t)(above[i] - difference);
      sums[2] = (int16_t)(above[i] + difference);
      sums[3] = (int16_t)(above[i] - sum);
    }
  }
}

static void bitedge_image_patch(const bitedge_window* w, const uint8_t* input, int32_t y, int32_t x, int32_t group,
                                bitedge_short* patch) {
  const int32_t depth = w->in_c / w->groups, last_x = w->in_w - w->kernel_w;
  /* A row of taps that lie side by side, or one tap at a time. */
  const int32_t together = w->groups == 1 && w->dilation_w == 1 && x >= 0 && x <= last_x ? w->kernel_w : 1;
  int32_t ky, kx, i;
  for (ky = 0; ky < w->kernel_h; ky++) {
    const int32_t row = y + ky * w->dilation_h;
    for (kx = 0; kx < w->kernel_w; kx += together) {
      const int32_t column = x + kx * w->dilation_w;
      if (row >= 0 && row < w->in_h && column >= 0 && column < w->in_w) {
        const uint8_t* from = input + (row * w->in_w + column) * w->in_c + group * depth;
        for (i = together * depth; i > 0; i--) *patch++ = (int16_t)(2 * *from++ - 255);
      } else {
        for (i = together * depth; i > 0; i--) *patch++ = 0;
      }
    }
  }
}

/* Add up what the bytes of each output point to; 16 fours share 256 sums. `fours` is a constant where it is inlined. */
BITEDGE_INLINE void bitedge_look_up_of(const bitedge_short* table, const uint8_t* weights, int32_t outputs,
                                       int32_t* sums, const int32_t fours) {
  for (; outputs > 0; outputs--, weights += fours) {
    int32_t sum = 0, i;
    BITEDGE_UNROLL
    for (i = 0; i < fours; i++) sum += table[(i >> 4) * 256 + weights[i]];
    *sums++ = sum;
  }
}

#define BITEDGE_LOOK_UP(fours)                                                                                       \
  extern bitedge_look_up bitedge_look_up_##fours;                                                                    \
  void bitedge_look_up_##fours(const bitedge_short* table, const uint8_t* weights, int32_t outputs, int32_t* sums) { \
    bitedge_look_up_of(table, weights, outputs, sums, fours);                                                        \
  }

void bitedge_image_conv2d(const bitedge_image_conv2d_layer* layer, const uint8_t* input, const bitedge_io* io) {
  const bitedge_window* w = &layer->window;
  const int32_t taps = w->kernel_h * w->kernel_w * (w->in_c / w->groups), fours = (taps + 3) >> 2;
  const int32_t outputs = w->out_c / w->groups;
  bitedge_short *const patch = (bitedge_short*)io->scratch, *const looked_up = patch + 4 * fours;
  bitedge_place place = {0, 0, 0, w->out_c, io->inputs};
  bitedge_sums sums;
  int32_t oy, ox, group, done, i;
  for (i = taps; i < 4 * fours; i++) patch[i] = 0;
  for (oy = 0; oy < w->out_h; oy++) {
    for (ox = 0; ox < w->out_w; ox++, place.pixel++) {
      const uint8_t* weights = layer->weights;
      place.first = 0;
      for (group = 0; group < w->groups; group++) {
        bitedge_image_patch(w, input, oy * w->stride_h - w->pad_top, ox * w->stride_w - w->pad_left, group, patch);
        bitedge_image_sums(patch, fours, looked_up);
        for (done = 0; done < outputs; done += place.count, place.first += place.count) {
          place.count = outputs - done < BITEDGE_BLOCK ? outputs - done : BITEDGE_BLOCK;
          layer->look_up(looked_up, weights, place.count, sums.sum);
          weights += fours * place.count;
          layer->epilogue.finish(&layer->epilogue, &sums, &place, io->floats, io->bits);
        }
      }
    }
  }
}
