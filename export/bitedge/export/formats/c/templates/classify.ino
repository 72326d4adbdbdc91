// Runs the network on an empty image and prints the best class; put your camera's pixels into `image`.
#include <model.h>

static uint32_t arena[MODEL_ARENA_WORDS];
static model_input image[MODEL_INPUT_SIZE];
static float answer[MODEL_OUTPUTS];

void setup() { Serial.begin(115200); }

void loop() {
  model_run(image, answer, arena);
  Serial.println(model_best(answer));
  delay(1000);
}
