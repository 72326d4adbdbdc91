/* Run the test vectors: prints what was found and ends with 0 when every answer is right. */
#include <stdio.h>
#include <string.h>

#include "model.h"
#include "test_vectors.h"

static uint32_t arena[MODEL_ARENA_WORDS];
static model_input image[MODEL_INPUT_SIZE];

int main(void) {
  float answer[MODEL_OUTPUTS];
  int vector, wrong = 0;
  for (vector = 0; vector < TEST_VECTORS; vector++) {
    const int32_t first_wrong =
        (test_input(vector, image), model_run(image, answer, arena), test_answer(vector, answer));
    printf("vector %d: best class %d, %s\n", vector, (int)model_best(answer), first_wrong < 0 ? "right" : "WRONG");
    wrong += first_wrong >= 0;
  }
  printf("%d of %d right, arena %u bytes\n", TEST_VECTORS - wrong, TEST_VECTORS, (unsigned)sizeof arena);
  return wrong != 0;
}
