/* Run a network's test vectors on a board: right or wrong, memory used, and a mark after every layer. */
#include <string.h>

#include "board.h"
#include "model.h"
#include "test_vectors.h"

#define GUARD 8

static uint32_t arena[MODEL_ARENA_WORDS + GUARD];
static model_input image[MODEL_INPUT_SIZE];
static float answer[MODEL_OUTPUTS];

void board_trace(uint32_t number, const void* address) {
  (void)address;
  board_mark(number);
}

static uint32_t touched(uint32_t from, uint32_t to) {
  uint32_t i, count = 0;
  for (i = from; i < to; i++) count += arena[i] != 0x5a5a5a5au;
  return count;
}

int board_main(void) {
  int32_t vector, wrong = 0;
  memset(arena, 0x5a, sizeof arena);
  for (vector = 0; vector < TEST_VECTORS; vector++) {
    test_input(vector, image);
    board_paint_stack();
    board_mark(1000000);
    model_run(image, answer, arena);
    board_mark(1000001);
    wrong += test_answer(vector, answer) >= 0;
  }
  board_print_number("wrong ", (uint32_t)wrong, "\n");
  board_print_number("vectors ", TEST_VECTORS, "\n");
  board_print_number("stack ", board_used_stack(), "\n");
  board_print_number("arena ", 4 * touched(0, MODEL_ARENA_WORDS), "\n");
  board_print_number("beyond ", touched(MODEL_ARENA_WORDS, MODEL_ARENA_WORDS + GUARD), "\n");
  return wrong || touched(MODEL_ARENA_WORDS, MODEL_ARENA_WORDS + GUARD);
}
