/* A plain int8 convolution of the shape of a binary one, as a compiler makes it of the textbook's loops. */
#include "board.h"

static int8_t maps_in[HEIGHT * WIDTH * CHANNELS], maps_out[HEIGHT * WIDTH * OUTPUTS];
static const int8_t all_weights[OUTPUTS * KERNEL * KERNEL * CHANNELS] = {1};
static const int32_t all_bias[OUTPUTS] = {1};

static __attribute__((noinline)) void convolve(const int8_t* input, const int8_t* weights, const int32_t* bias,
                                               int8_t* output) {
  int32_t y, x, o, ky, kx, c;
  for (y = 0; y < HEIGHT; y++) {
    for (x = 0; x < WIDTH; x++) {
      for (o = 0; o < OUTPUTS; o++) {
        int32_t sum = bias[o];
        for (ky = 0; ky < KERNEL; ky++) {
          const int32_t row = y + ky - KERNEL / 2;
          if (row < 0 || row >= HEIGHT) continue;
          for (kx = 0; kx < KERNEL; kx++) {
            const int32_t column = x + kx - KERNEL / 2;
            const int8_t* from = input + (row * WIDTH + column) * CHANNELS;
            const int8_t* weight = weights + ((o * KERNEL + ky) * KERNEL + kx) * CHANNELS;
            if (column < 0 || column >= WIDTH) continue;
            for (c = 0; c < CHANNELS; c++) sum += from[c] * weight[c];
          }
        }
        sum = (int32_t)(((int64_t)sum * 1518500250 + (1 << 30)) >> 31) >> 7;
        output[(y * WIDTH + x) * OUTPUTS + o] = (int8_t)(sum < -128 ? -128 : sum > 127 ? 127 : sum);
      }
    }
  }
}

int board_main(void) {
  board_mark(1000000);
  convolve(maps_in, all_weights, all_bias, maps_out);
  board_mark(1000001);
  board_print_number("first ", (uint32_t)maps_out[0], "\n");
  return 0;
}
