/* Operators of a binarized network for microcontrollers, written by `bitedge export --formats c`.
 *
 * C99 without a heap; of the C library only memcpy and memset. Bit 1 means -1. Bits run along channels, least
 * significant bit first, in 32-bit words; unused bits of a pixel's last word are 0. Maps are height, width, channel.
 * All memory that an operator needs is given by the caller, so calls with separate buffers may run at the same time.
 */
#ifndef BITEDGE_MCU_H
#define BITEDGE_MCU_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The arena holds bits, floats and scratch in turn. GCC and Clang must know that these words may hold any of them. */
#if defined(__GNUC__)
typedef uint32_t __attribute__((__may_alias__)) bitedge_word;
typedef int16_t __attribute__((__may_alias__)) bitedge_short;
#else
typedef uint32_t bitedge_word;
typedef int16_t bitedge_short;
#endif

/* Where a convolution or a pooling looks. */
typedef struct {
  int32_t in_h, in_w, in_c;
  int32_t out_h, out_w, out_c;
  int32_t kernel_h, kernel_w, stride_h, stride_w, pad_top, pad_left, dilation_h, dilation_w, groups;
} bitedge_window;

/* At most this many channels of one pixel pass through an epilogue at once. */
#define BITEDGE_BLOCK 32

/* Sums of such a block; four outputs are computed at a time, so there may be up to three unused ones at the end. */
typedef union {
  int32_t sum[BITEDGE_BLOCK + 4];
  float y[BITEDGE_BLOCK + 4];
} bitedge_sums;

/* Where a block is: `count` channels from `first` on, of one pixel of a map with `channels` channels. */
typedef struct {
  int32_t pixel, first, count, channels;
  const void* const* inputs;
} bitedge_place;

typedef struct bitedge_step bitedge_step;
struct bitedge_step {
  void (*apply)(const bitedge_step* step, float* y, const bitedge_place* place);
  const float* a;
  const float* b;
  int32_t input; /* index into the inputs after the first */
  float low, high;
};

/* What becomes of the sums: bits by thresholds, or steps in float and then floats, bits or both. */
typedef struct bitedge_epilogue bitedge_epilogue;
struct bitedge_epilogue {
  void (*finish)(const bitedge_epilogue* epilogue, bitedge_sums* sums, const bitedge_place* place, float* floats,
                 bitedge_word* bits);
  const int16_t* threshold;      /* one per output channel; the bit is sum < threshold */
  const int32_t* wide_threshold; /* in its place where 16 bits are not enough */
  const bitedge_step* steps;
  int32_t step_count;
};

/* The memory of one call: inputs after the first, outputs (NULL when there is none), scratch. */
typedef struct {
  const void* const* inputs;
  float* floats;
  bitedge_word* bits;
  void* scratch;
} bitedge_io;

/* sums[i] = taps - 2 * popcount(patch ^ weights of output i), for 4 * quads outputs; with a mask only where it has
 * ones. */
typedef void bitedge_dots(const bitedge_word* patch, const bitedge_word* mask, const bitedge_word* weights,
                          int32_t quads, int32_t taps, int32_t* sums);

typedef struct {
  bitedge_window window;
  const bitedge_word* weights; /* per group and four outputs: KH * KW * words of them, interleaved */
  bitedge_dots* dots;          /* for windows without padding, or padded with +1 or -1 */
  bitedge_dots* edge_dots;     /* for windows that hang over an edge padded with 0; NULL if there is none */
  int32_t words;               /* of one tap: ceil(in_c / groups / 32) */
  int32_t pad_negative;        /* padded with -1 */
  bitedge_epilogue epilogue;
} bitedge_binary_conv2d_layer;

/* sums[i] is what the bytes of output i point to in the table. */
typedef void bitedge_look_up(const bitedge_short* table, const uint8_t* weights, int32_t outputs, int32_t* sums);

typedef struct {
  bitedge_window window;
  bitedge_look_up* look_up;
  const uint8_t* weights; /* per output: one byte for four taps, 16 * (index mod 16) + signs */
  bitedge_epilogue epilogue;
} bitedge_image_conv2d_layer;

typedef struct {
  bitedge_window window;
  const float* weights;         /* [out_c][kernel_h][kernel_w][in_c / groups] */
  const uint16_t* half_weights; /* the same in half precision, in its place */
  bitedge_epilogue epilogue;
} bitedge_conv2d_layer;

typedef struct {
  int32_t pixels, channels;
  bitedge_epilogue epilogue;
} bitedge_elementwise_layer;

/* Convolutions. Scratch: bitedge_binary_conv2d KH * KW * words words, twice if edge_dots is there;
 * bitedge_image_conv2d 36 bytes per four taps of a window. */
void bitedge_binary_conv2d(const bitedge_binary_conv2d_layer* layer, const bitedge_word* input, const bitedge_io* io);
void bitedge_image_conv2d(const bitedge_image_conv2d_layer* layer, const uint8_t* input, const bitedge_io* io);
void bitedge_conv2d(const bitedge_conv2d_layer* layer, const float* input, const bitedge_io* io);
void bitedge_conv2d_half(const bitedge_conv2d_layer* layer, const float* input, const bitedge_io* io);

/* Elementwise on floats, and on bits as +1 and -1. */
void bitedge_elementwise(const bitedge_elementwise_layer* layer, const float* input, const bitedge_io* io);
void bitedge_elementwise_bits(const bitedge_elementwise_layer* layer, const bitedge_word* input, const bitedge_io* io);

/* Poolings. Channels of `min_channels` take the minimum; NULL for none. */
void bitedge_max_pool2d_bits(const bitedge_window* w, const bitedge_word* min_channels, const bitedge_word* in,
                             bitedge_word* out);
void bitedge_max_pool2d(const bitedge_window* w, const float* in, float* out);
/* Rows from count_h and columns from count_w on (of the padded map) do not count in the divisor; nor does padding when
 * count_pads is 0. */
void bitedge_avg_pool2d(const bitedge_window* w, int32_t count_pads, int32_t count_h, int32_t count_w, const float* in,
                        float* out);
void bitedge_adaptive_avg_pool2d(const bitedge_window* w, const float* in, float* out);

void bitedge_normalize(int32_t pixels, int32_t channels, const float* scale, const float* offset, const uint8_t* in,
                       float* out);
void bitedge_layer_norm(int32_t pixels, int32_t channels, const float* weight, const float* bias, float eps,
                        const float* in, float* out);
void bitedge_group_norm(int32_t pixels, int32_t channels, int32_t groups, const float* weight, const float* bias,
                        float eps, const float* in, float* out);
void bitedge_softmax(int32_t pixels, int32_t channels, const float* in, float* out);

/* Put `channels` channels of a map into another one of `total` channels, from `first` on. */
void bitedge_concat(int32_t pixels, int32_t channels, int32_t first, int32_t total, const float* in, float* out);
void bitedge_concat_bits(int32_t pixels, int32_t channels, int32_t first, int32_t total, const bitedge_word* in,
                         bitedge_word* out);
/* Output channel o is input channel index[o]; -1 gives 0. */
void bitedge_gather_channels(int32_t pixels, int32_t channels, const int32_t* index, int32_t total, const float* in,
                             float* out);
void bitedge_gather_channels_bits(int32_t pixels, int32_t channels, const int32_t* index, int32_t total,
                                  const bitedge_word* in, bitedge_word* out);

/* Epilogues, and the steps of one in float. */
void bitedge_finish_threshold(const bitedge_epilogue* epilogue, bitedge_sums* sums, const bitedge_place* place,
                              float* floats, bitedge_word* bits);
void bitedge_finish_floats(const bitedge_epilogue* epilogue, bitedge_sums* sums, const bitedge_place* place,
                           float* floats, bitedge_word* bits);
void bitedge_finish_integers(const bitedge_epilogue* epilogue, bitedge_sums* sums, const bitedge_place* place,
                             float* floats, bitedge_word* bits);
void bitedge_step_fma(const bitedge_step* step, float* y, const bitedge_place* place);
void bitedge_step_add(const bitedge_step* step, float* y, const bitedge_place* place);
void bitedge_step_add_bits(const bitedge_step* step, float* y, const bitedge_place* place);
void bitedge_step_multiply(const bitedge_step* step, float* y, const bitedge_place* place);
void bitedge_step_multiply_channels(const bitedge_step* step, float* y, const bitedge_place* place);
void bitedge_step_relu(const bitedge_step* step, float* y, const bitedge_place* place);
void bitedge_step_prelu(const bitedge_step* step, float* y, const bitedge_place* place);
void bitedge_step_prelu_one(const bitedge_step* step, float* y, const bitedge_place* place);
void bitedge_step_clamp(const bitedge_step* step, float* y, const bitedge_place* place);
void bitedge_step_hardsigmoid(const bitedge_step* step, float* y, const bitedge_place* place);
void bitedge_step_hardswish(const bitedge_step* step, float* y, const bitedge_place* place);
void bitedge_step_sigmoid(const bitedge_step* step, float* y, const bitedge_place* place);
void bitedge_step_tanh(const bitedge_step* step, float* y, const bitedge_place* place);
void bitedge_step_silu(const bitedge_step* step, float* y, const bitedge_place* place);

/* x * y + z with one rounding, by the instruction where there is one, otherwise in integers. */
float bitedge_fma(float x, float y, float z);

#ifdef __cplusplus
}
#endif

#endif
