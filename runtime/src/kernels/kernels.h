// What a set of kernels is: plain structs and function pointers, so that a file compiled for one instruction set
// includes nothing that could leave a copy of itself in the others (no templates of the standard library).
//
// All kernels work on blocks of 16 output channels, in the lanes. A convolution kernel reads a map that its layer has
// prepared (padded, so that no tap needs a test), finds the window of an output pixel through a table of origins, and
// the taps of a window through a table of steps. Nothing is unfolded in memory.
//
// Names: <instruction set> <operator> <pixels>x<channels> of the register tile.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "graph/step_kind.h"
#include "kernels/tuning.h"

namespace bitedge {

constexpr int kBlock = 16;

// How much of an epilogue is known when a kernel is compiled. It is decided once, when a layer is made. The first ones
// dominate networks and have no test left inside; they need whole blocks of channels.
enum class EpilogueKind : int32_t {
  kThreshold,
  kScale,     // fma; floats
  kResidual,  // fma, add of floats; floats and bits
  kShifted,   // fma, add of floats, shift, prelu, shift; floats, and after a shift bits: RPReLU and the next RSign
  kRescaled,  // the same with an fma in place of each shift
  kSign,      // fma or nothing; bits
  kPlain,     // nothing; floats
  kRelu,      // relu; floats
  kSteps,     // anything, step by step
};

// A step with its parameters padded to whole blocks.
struct BoundStep {
  enum Operand : int32_t { kFloats, kBits, kVector };  // kVector: one row per image

  StepKind kind = StepKind::kRelu;
  const float* scale = nullptr;  // of fma; slope of prelu
  const float* bias = nullptr;
  float min = 0, max = 0;
  Operand operand_kind = kFloats;
  size_t input = 0;        // of add and multiply: which of BoundEpilogue::inputs,
  size_t image_bytes = 0;  // and what each image takes there
};

// The epilogue of docs/format.md for one call. Pixel p of the call writes row p of the outputs.
struct BoundEpilogue {
  EpilogueKind kind = EpilogueKind::kSteps;
  const int32_t* threshold = nullptr;  // set: bits out, and no step applies
  const float* scale = nullptr;        // of the fma that comes first, or null
  const float* bias = nullptr;
  // Of kRescaled: scale and bias, slope, scale and bias, scale and bias. Of kShifted: bias, slope, bias, and the bias
  // with the other sign: y + b < 0 just when y < -b, since the sign of a rounded sum is that of the sum.
  const float* shifts[7] = {};
  const BoundStep* steps = nullptr;
  int32_t count = 0;                    // of the steps
  int32_t floats_after = 0;             // so many of them; the others are for the bits alone
  int32_t channels = 0;                 // of the outputs
  int32_t pitch = 0;                    // floats from one pixel to the next: the channels, or more or less
  size_t pixels = 1;                    // of an image, for kVector
  const void* const* inputs = nullptr;  // of the node, and the image of the call that pixel 0 belongs to
  size_t image = 0;
  const float* residual = nullptr;  // what the first add reads, where the kind has one
  float* floats = nullptr;          // [pixels, channels], `pitch` apart, or null
  uint64_t* bits = nullptr;         // [pixels, words], or null

  // What a step reads, for pixel 0 of the call.
  const void* operand(const BoundStep& step) const {
    return static_cast<const unsigned char*>(inputs[step.input]) + image * step.image_bytes;
  }
};

// The part of a convolution that one call computes, and where its windows are.
struct Region {
  const int32_t* origin = nullptr;  // [pixels] offset of the window of a pixel in the map
  const int32_t* step = nullptr;    // offsets within a window
  int32_t pixel_begin = 0, pixel_end = 0;
  int32_t block_begin = 0, block_end = 0;
};

// acc = base[row[pixel]][channel] - 2·popcount(a xor w): base is the number of taps times channels, less what padded
// taps would add under zero padding, so a border pixel costs no more than another.
struct BinaryConv {
  Region region;
  const uint64_t* map = nullptr;
  int32_t groups = 0, singles = 0;    // steps: first groups of words, then single words
  const uint64_t* weights = nullptr;  // [block][words in the order of the steps][16 lanes]
  const int32_t* base = nullptr;      // [rows][channels in whole blocks]
  const int32_t* row = nullptr;       // [pixels] offset of the row of a pixel in `base`; null: all zero
  const char* ahead = nullptr;        // what a later layer reads: fetched meanwhile
  size_t ahead_bytes = 0;
  BoundEpilogue epilogue;
};

// Parity is linear: over the words w0, w1, ... of a group the bit sums of (a xor w) modulo 2 are (a0 ^ a1 ^ ...) xor
// (w0 ^ w1 ^ ...), one operation once both sides are known. A full adder is then four operations instead of six, and a
// group needs fewer population counts. Weights are combined at load, activations while the map is prepared.
enum class Grouping : int32_t {
  kNone,   // every word is single
  kPairs,  // words 2i and 2i + 1 of a pixel become (a0, a0 ^ a1)
  kRows,   // rows 3i, 3i + 1, 3i + 2 of the kernel become (a0, a0 ^ a1, ~(a0 ^ a1 ^ a2)), stored at the first pixel
};

struct BinaryKernel {
  const char* tile;
  Grouping grouping;
  uint8_t lane[kBlock];  // where channel i of a block lies among the 16 words of a step
  void (*run)(const BinaryConv&);
  void (*stream)(const BinaryConv&);  // single words, one pixel: a matrix times a vector; null for half words
};

// acc = base[row[pixel]][channel] + 2·Σ w·(u - bias), four bytes per step.
struct ImageConv {
  Region region;
  const uint8_t* map = nullptr;  // u - bias, as the kernel reads it; padding is 0
  int32_t steps = 0;
  const int8_t* weights = nullptr;  // [block][step][16][4]
  const int32_t* base = nullptr;
  const int32_t* row = nullptr;
  BoundEpilogue epilogue;
};

struct ImageKernel {
  const char* tile;
  int32_t bias;  // 0: bytes are unsigned; 128: signed
  void (*run)(const ImageConv&);
};

// One chain of fused multiply-adds per output, in the order of the steps. The weights of `side` blocks lie side by
// side: [blocks / side][step][run][side][16], filled up with zeros.
struct FloatConv {
  Region region;
  const float* map = nullptr;
  int32_t steps = 0, run = 0;  // each step is `run` consecutive floats
  int32_t side = 1;
  const float* weights = nullptr;
  BoundEpilogue epilogue;
};

// The same for one pixel: a matrix times a vector, of which only the elements that are not zero are listed, half of
// them behind a ReLU. A product with zero would change no sum (weights are finite), so its weights need not be read.
struct FloatStream {
  static constexpr int32_t kRows = 8;  // that are read together

  const int32_t* row = nullptr;  // [count + kRows] rows of the weights, the last ones only to be fetched ahead
  const float* value = nullptr;  // [count]
  int32_t count = 0;
  int32_t block_begin = 0, block_end = 0, blocks = 0;  // multiples of 4
  const float* weights = nullptr;                      // [rows][blocks][16]
  float* sums = nullptr;                               // [blocks][16]
  BoundEpilogue epilogue;
};

struct FloatKernel {
  const char* tile;
  void (*run)(const FloatConv&);
  void (*stream)(const FloatStream&);
};

// Where the windows of a pooling or a convolution lie in an image that is not padded: taps outside of it are left out.
struct Windows {
  int32_t in_h = 0, in_w = 0, out_w = 0;
  int32_t kernel_h = 0, kernel_w = 0, stride_h = 0, stride_w = 0, pad_top = 0, pad_left = 0, dilation_h = 1,
          dilation_w = 1;
  int32_t row_begin = 0, row_end = 0;  // rows of the output of one image
};

// A float convolution in groups of few channels: each lane of a block adds up for its own output channel what the same
// lane of the map holds. A pixel of the map is `depth` rows of `lanes` floats; row i has, for every output channel,
// channel i of its group. For a depthwise convolution of whole blocks that is the image itself, else spread() makes it.
// One chain of fused multiply-adds per output, over the taps in order.
struct LaneConv : Windows {
  const float* map = nullptr;
  int32_t depth = 1, lanes = 0;
  const int32_t* step = nullptr;   // [tap][depth] offsets in the map
  const float* weights = nullptr;  // [block][tap][depth][16]
  BoundEpilogue epilogue;
};

// Pixels of `channels` floats become pixels of `blocks` blocks: lane l of block b is channel first[b] + index[b][l],
// and 0 <= index < 16. No channel from `channels` on is read.
struct Spread {
  const float* from = nullptr;
  float* to = nullptr;
  const int32_t* first = nullptr;  // [blocks]
  const int32_t* index = nullptr;  // [blocks][16]
  int32_t channels = 0, blocks = 0;
  size_t pixels = 0;
};

struct LaneKernel {
  const char* tile;
  void (*run)(const LaneConv&);
  void (*spread)(const Spread&);
};

// A float convolution of an image, by tiles of 4x4 or 5x5 outputs: see winograd.inl. The map holds, for each position
// of a phase, the bytes of all phases and channels, in `lanes` (a multiple of 16) of which `depth` count.
struct StemLayout {
  int32_t map_w = 0, lanes = 0, depth = 0;
  const float* center = nullptr;     // [lanes], taken from each byte
  const int32_t* element = nullptr;  // [depth] where an element of the depth lies among the points of a tile
  int32_t wide = 0;                  // elements whose phase has all taps along x: the first ones. Of them, and of the
  int32_t whole = 0, high = 0;       // others, the first `whole` and `high` have all taps along y
  const float* weights = nullptr;    // [block][row of points][depth][column of points][16]
  const float* bias = nullptr;       // [rows][channels in whole blocks]
  const int32_t* row = nullptr;      // [pixels] offset of the row of a pixel in `bias`
  int32_t tile = 4;                  // outputs along each axis, and
  int32_t points = 0;                // points: 4 and 6, 4 and 7, or 5 and 7
  int32_t out_h = 0, out_w = 0;

  size_t scratch_floats() const {
    return size_t(tuning::kStemStrip) * size_t(points) * size_t(points * lanes + tile * kBlock);
  }
};

// One call: tiles by blocks.
struct StemConv {
  const StemLayout* layout = nullptr;
  const uint8_t* map = nullptr;
  int32_t tiles_w = 0;
  int32_t first_row = 0;  // of the outputs, that `epilogue` begins with
  int32_t tile_begin = 0, tile_end = 0;
  int32_t block_begin = 0, block_end = 0;  // a strip's call without the first block follows one with it
  float* scratch = nullptr;
  BoundEpilogue epilogue;
};

struct StemKernel {
  const char* tile;
  void (*run)(const StemConv&);
};

// Windows without weights, over pixels of floats or words.
struct Pool2d : Windows {
  const void* input = nullptr;
  void* output = nullptr;
  int32_t lanes = 0, in_pitch = 0, out_pitch = 0;  // floats, or words: of a pixel, and from one to the next
  // Of an average: whether taps outside of the image count in the divisor, as far as they lie before these ends.
  bool count_include_pad = false;
  int32_t counted_h = 0, counted_w = 0;
  const uint64_t* minimum = nullptr;  // on bits: channels that take the minimum; null: none
};

// Windows that cover the image, as many as are wanted: adaptive_avg_pool2d of docs/format.md.
struct AdaptivePool {
  const float* input = nullptr;
  float* output = nullptr;
  int32_t in_h = 0, in_w = 0, out_h = 0, out_w = 0, channels = 0;
  int32_t row_begin = 0, row_end = 0;  // of the output of one image
};

// `pixels` rows of `channels` elements.
struct Rows {
  const void* input = nullptr;
  float* output = nullptr;
  const float* scale = nullptr;
  const float* bias = nullptr;
  size_t pixels = 0;
  int32_t channels = 0;
  float eps = 0;
};

// One row of an image, for group_norm: with a mean and an inverse per channel.
struct NormRow {
  const float* input = nullptr;
  float* output = nullptr;  // [channels] sums, or [pixels, channels]
  const float* mean = nullptr;
  const float* inverse = nullptr;
  const float* scale = nullptr;
  const float* bias = nullptr;
  size_t pixels = 0;
  int32_t channels = 0;
};

// The operators that have no weights to repack.
struct RowKernels {
  void (*max_pool_float)(const Pool2d&);
  void (*max_pool_bits)(const Pool2d&);
  void (*avg_pool)(const Pool2d&);
  void (*adaptive_avg_pool)(const AdaptivePool&);
  void (*normalize)(const Rows&);
  void (*layer_norm)(const Rows&);
  void (*softmax)(const Rows&);
  // Of each channel: Σ x, or with a mean Σ (x - mean)².
  void (*row_sums)(const NormRow&);
  // fma((x - mean)·inverse, scale, bias)
  void (*row_norm)(const NormRow&);
  // The epilogue alone: rows of floats, or of bits as ±1 (`from_bits`), of pixels [begin, end).
  void (*elementwise)(const void* input, bool from_bits, size_t begin, size_t end, const BoundEpilogue&);
};

// One row of the table in table.cpp. The scalar set has no kernels: its nodes run by the reference.
struct KernelSet {
  const char* name;
  uint32_t features;  // all of these CpuFeature bits are needed
  const BinaryKernel* binary;
  const BinaryKernel* half;  // reads map and weights in words of 32 bits, as half_word_map.h lays them out; or null
  const ImageKernel* image;
  const FloatKernel* conv;
  const LaneKernel* lanes;
  const StemKernel* stem;
  const RowKernels* rows;
};

// What the files of this folder define.
extern const BinaryKernel kAvx512VpopcntdqBinary, kAvx512VpopcntdqHalf, kAvx512Binary, kAvx2Binary, kNeonBinary,
    kNeonDotBinary, kPortableBinary;
extern const ImageKernel kAvx512VnniImage, kAvx512Image, kAvx2Image, kNeonImage, kNeonDotImage, kPortableImage;
extern const FloatKernel kAvx512Float, kAvx2Float, kNeonFloat, kPortableFloat;
extern const LaneKernel kAvx512Lanes, kAvx2Lanes, kNeonLanes, kPortableLanes;
extern const StemKernel kAvx512Stem, kAvx2Stem, kNeonStem, kPortableStem;
extern const RowKernels kAvx512Rows, kAvx2Rows, kNeonRows, kPortableRows;

}  // namespace bitedge
