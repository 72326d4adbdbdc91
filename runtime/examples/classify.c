/* Classify one raw image with a packed model:
 *
 *     classify model.gguf [image.bin]
 *
 * The image is the model's input as plain bytes: height x width x channels, uint8 or float32. Without one the model
 * checks itself with its golden vectors and classifies a grey image. Build it with any C compiler:
 *
 *     cc classify.c -I../include -L<folder of libbitedge.so> -lbitedge -o classify
 */
#include <bitedge/bitedge.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const char* what) {
  fprintf(stderr, "%s: %s\n", what, bitedge_last_error());
  return 1;
}

static int read_image(const char* path, void* pixels, size_t bytes) {
  FILE* file = fopen(path, "rb");
  size_t count = file ? fread(pixels, 1, bytes, file) : 0;
  if (file) fclose(file);
  if (count == bytes) return 1;
  fprintf(stderr, "%s: expected %zu bytes, got %zu\n", path, bytes, count);
  return 0;
}

static void print_best(const bitedge_model* model, const float* logits, size_t count) {
  size_t best = 0, i;
  for (i = 1; i < count; ++i) {
    if (logits[i] > logits[best]) best = i;
  }
  const char* label = bitedge_model_label(model, best);
  if (label) {
    printf("%s %.6g\n", label, logits[best]);
  } else {
    printf("class %zu %.6g\n", best, logits[best]);
  }
}

int main(int argc, char** argv) {
  bitedge_model* model = NULL;
  bitedge_context* context = NULL;
  bitedge_model_info info;
  void* pixels = NULL;
  float* logits = NULL;
  int status = 1;

  if (argc < 2) {
    fprintf(stderr, "usage: classify model.gguf [image.bin]\n");
    return 2;
  }
  if (bitedge_model_load_file(argv[1], NULL, &model) != BITEDGE_OK) return fail("load");
  memset(&info, 0, sizeof info);
  info.struct_size = sizeof info;
  if (bitedge_model_get_info(model, &info) != BITEDGE_OK ||
      bitedge_context_create(model, NULL, &context) != BITEDGE_OK) {
    fail("prepare");
    goto done;
  }
  pixels = calloc(1, info.input_bytes);
  logits = malloc(info.output_count * sizeof *logits);
  if (!pixels || !logits) goto done;
  if (argc > 2) {
    if (!read_image(argv[2], pixels, info.input_bytes)) goto done;
  } else {
    if (bitedge_model_check(model) != BITEDGE_OK) {
      fail("check");
      goto done;
    }
    if (info.input_kind == BITEDGE_UINT8) memset(pixels, 128, info.input_bytes);
  }
  if (bitedge_context_run(context, pixels, info.input_bytes, 1, logits, info.output_count * sizeof *logits) !=
      BITEDGE_OK) {
    fail("run");
    goto done;
  }
  print_best(model, logits, info.output_count);
  status = 0;

done:
  free(logits);
  free(pixels);
  bitedge_context_free(context);
  bitedge_model_free(model);
  return status;
}
