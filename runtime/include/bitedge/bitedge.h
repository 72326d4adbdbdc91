/* bitedge: run a packed binarized network (docs/format.md).
 *
 *     bitedge_model* model = NULL;
 *     bitedge_context* context = NULL;
 *     if (bitedge_model_load_file("model.gguf", NULL, &model) != BITEDGE_OK ||
 *         bitedge_context_create(model, NULL, &context) != BITEDGE_OK ||
 *         bitedge_context_run(context, pixels, pixel_bytes, 1, logits, sizeof logits) != BITEDGE_OK)
 *       fprintf(stderr, "%s\n", bitedge_last_error());
 *     bitedge_context_free(context);
 *     bitedge_model_free(model);
 *
 * Errors. Every function that can fail returns a bitedge_status; bitedge_last_error() then has one line for the same
 * thread. Nothing is written through an output pointer unless BITEDGE_OK is returned. No C++ exception and no signal
 * leaves the library.
 *
 * Threads. A model is immutable: any number of threads may use it at once. A context serves one thread at a time;
 * contexts of one model run side by side. Functions without a handle may be called from anywhere.
 *
 * Lifetimes. Handles are freed by their own free function, once; NULL is allowed there. A context keeps what it needs
 * of its model alive, so the two may be freed in either order. Strings and pointers that the library returns belong to
 * the handle that they came from, or to the library when there is none; they stay valid until that handle is freed,
 * unless said otherwise. A model's file is read once: afterwards it may change or vanish.
 *
 * Memory. A model, and each context, has a limit, so that no file makes a process larger than its owner wants: what
 * does not fit is BITEDGE_ERROR_MEMORY before it is allocated. After any error every handle can be used as before it.
 *
 * Processes. After a fork the child may use the models and contexts of its parent that were not in use at that moment;
 * a context with several threads starts them anew at its next run.
 *
 * Versions. BITEDGE_API_VERSION grows when something here changes its meaning; bitedge_api_version() tells what the
 * library was built with. Structures start with `struct_size`, to be set to sizeof the structure by the caller, so that
 * fields can be added at the end without a new version.
 */
#ifndef BITEDGE_H
#define BITEDGE_H

#include <stddef.h>
#include <stdint.h>

#define BITEDGE_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

#define BITEDGE_API_VERSION 1

typedef enum bitedge_status {
  BITEDGE_OK = 0,
  BITEDGE_ERROR_ARGUMENT = 1,    /* an argument is NULL, of the wrong size, or out of range */
  BITEDGE_ERROR_IO = 2,          /* the file cannot be opened or read */
  BITEDGE_ERROR_FORMAT = 3,      /* not a packed model, truncated, or breaking a rule of the format */
  BITEDGE_ERROR_VERSION = 4,     /* written in a newer format than this library knows */
  BITEDGE_ERROR_CHECKSUM = 5,    /* the SHA-256 of the file is not the one that it states */
  BITEDGE_ERROR_UNAVAILABLE = 6, /* kernels of that name are not built, or this CPU cannot run them */
  BITEDGE_ERROR_GOLDEN = 7,      /* a golden vector gave another answer, or the file has none */
  BITEDGE_ERROR_MEMORY = 8,      /* out of memory, above a memory_limit, or a thread cannot be started */
  BITEDGE_ERROR_INTERNAL = 9     /* a bug in the library; please report the message */
} bitedge_status;

typedef enum bitedge_kind {
  BITEDGE_UINT8 = 0,
  BITEDGE_FLOAT32 = 1,
  BITEDGE_BITS = 2 /* 64-bit words along channels, least significant bit first; bit 1 is -1, tail bits are 0 */
} bitedge_kind;

typedef struct bitedge_model bitedge_model;
typedef struct bitedge_context bitedge_context;

/* ---- The library ---- */

BITEDGE_API uint32_t bitedge_api_version(void);
BITEDGE_API const char* bitedge_version(void); /* of the package, such as "0.1.0" */

/* The message of the last call of this thread that failed; "" before the first. Valid until this thread's next failure.
 */
BITEDGE_API const char* bitedge_last_error(void);

/* Names of what this CPU and the operating system offer, separated by spaces; "" when out of memory. */
BITEDGE_API const char* bitedge_cpu_features(void);

/* A set of kernels for one instruction set. */
typedef struct bitedge_kernel_info {
  size_t struct_size;
  const char* name;
  int32_t built;     /* compiled into this library */
  int32_t supported; /* this CPU and the operating system can run it */
  int32_t chosen;    /* taken when no name is asked for, the environment variable BITEDGE_KERNELS considered */
} bitedge_kernel_info;

BITEDGE_API size_t bitedge_kernel_count(void); /* 0 when out of memory */
/* Sets in order of preference, best first. */
BITEDGE_API bitedge_status bitedge_kernel(size_t index, bitedge_kernel_info* info);

/* ---- Models ---- */

typedef struct bitedge_load_options {
  size_t struct_size;
  /* Name of the kernels to use. NULL: what the environment variable BITEDGE_KERNELS names, or else the best available.
   */
  const char* kernels;
  /* The most bytes that the model may take. 0: 256 MiB and 64 times the size of the file. */
  uint64_t memory_limit;
} bitedge_load_options;

/* Reads, checks and prepares a model. `options` may be NULL. */
BITEDGE_API bitedge_status bitedge_model_load_file(const char* path, const bitedge_load_options* options,
                                                   bitedge_model** model);
/* The same from memory; the bytes are copied and may be released afterwards. */
BITEDGE_API bitedge_status bitedge_model_load_memory(const void* data, size_t size, const bitedge_load_options* options,
                                                     bitedge_model** model);
BITEDGE_API void bitedge_model_free(bitedge_model* model);

typedef struct bitedge_model_info {
  size_t struct_size;
  bitedge_kind input_kind; /* BITEDGE_UINT8 or BITEDGE_FLOAT32 */
  int32_t input_height, input_width, input_channels;
  size_t input_bytes;  /* of one image */
  size_t output_count; /* floats of one answer */
  size_t output_index; /* the value that is the answer */
  size_t value_count, node_count, label_count, golden_count;
  uint64_t
      memory_bytes; /* that the model holds: repacked weights, tables, texts, and what it still reads of the file */
} bitedge_model_info;

BITEDGE_API bitedge_status bitedge_model_get_info(const bitedge_model* model, bitedge_model_info* info);

/* The name of an output; NULL when the model has no labels or not so many. */
BITEDGE_API const char* bitedge_model_label(const bitedge_model* model, size_t index);

/* Everything about the model as one JSON object: metadata, labels, preprocessing, values, nodes with operator, names,
 * shapes, kernel, multiply-accumulates and bytes. runtime/README.md describes it. NULL for a NULL model. */
BITEDGE_API const char* bitedge_model_describe(const bitedge_model* model);

/* A node of the graph, and the first value that it makes. */
typedef struct bitedge_node_info {
  size_t struct_size;
  const char* op;   /* of docs/format.md, such as "binary_conv2d" */
  const char* name; /* of its first output */
  /* What runs it here: "avx2 binary_conv2d 4x16", "scalar softmax" (the reference, slow), "fused into conv1". */
  const char* kernel;
  size_t output_index;             /* the value that is its first output */
  bitedge_kind kind;               /* of that value */
  int32_t height, width, channels; /* of that value, for one image */
  uint64_t macs;                   /* multiply-accumulates of one image */
  uint64_t file_bytes;             /* of its tensors in the file */
} bitedge_node_info;

BITEDGE_API bitedge_status bitedge_model_node(const bitedge_model* model, size_t index, bitedge_node_info* info);

/* Runs the golden vectors of the file. BITEDGE_ERROR_GOLDEN when an answer differs or the file has none. */
BITEDGE_API bitedge_status bitedge_model_check(const bitedge_model* model);

/* ---- Contexts ---- */

typedef struct bitedge_context_options {
  size_t struct_size;
  int32_t threads;     /* 1 to 256, the calling thread included; answers do not depend on it */
  int32_t keep_values; /* not 0: every value of the last run can be read with bitedge_context_value */
  /* The most bytes of the arena. A batch that does not fit is run in smaller parts; with keep_values, and when a single
   * image does not fit, it is refused. 0: the limit of the model, for each image of the batch. */
  uint64_t memory_limit;
  /* How long a thread of the context looks for work before it sleeps. 0: 100, which is fastest when images follow each
   * other closely; -1: not at all, which leaves the cores to others. Every context has its own threads: contexts that
   * run at once should have no more of them together than there are cores. */
  int32_t spin_microseconds;
} bitedge_context_options;

/* `options` may be NULL: one thread, values not kept. */
BITEDGE_API bitedge_status bitedge_context_create(const bitedge_model* model, const bitedge_context_options* options,
                                                  bitedge_context** context);
BITEDGE_API void bitedge_context_free(bitedge_context* context);

/* Runs `batch` images, at least one, [batch, height, width, channels] of the model's input kind, aligned as that type
 * wants. `input_bytes` and `output_bytes` must be exactly what `batch` images and answers take. Memory is planned when
 * a batch is larger than all before it; otherwise nothing is allocated. */
BITEDGE_API bitedge_status bitedge_context_run(bitedge_context* context, const void* input, size_t input_bytes,
                                               size_t batch, float* output, size_t output_bytes);

typedef struct bitedge_memory {
  size_t struct_size;
  uint64_t model;   /* of the model, shared by all of its contexts */
  uint64_t arena;   /* of this context: values and scratch; 0 before the first run */
  uint64_t scratch; /* the part of the arena that the neediest layer works in */
} bitedge_memory;

/* What is held now, in bytes. */
BITEDGE_API bitedge_status bitedge_context_memory(const bitedge_context* context, bitedge_memory* memory);

typedef struct bitedge_value {
  size_t struct_size;
  const char* name;
  bitedge_kind kind;
  size_t batch;
  int32_t height, width, channels;
  /* [batch, height, width, channels], bits as words for the channels; valid until the next run. Value 0 is the
   * memory that the caller passed to that run. */
  const void* data;
  size_t bytes;
} bitedge_value;

/* A value of the last run. BITEDGE_ERROR_ARGUMENT when the context does not keep values or has not run. */
BITEDGE_API bitedge_status bitedge_context_value(const bitedge_context* context, size_t index, bitedge_value* value);

/* While profiling is on, the wall time of each node is summed; turning it on starts from zero. */
BITEDGE_API bitedge_status bitedge_context_set_profiling(bitedge_context* context, int on);
/* Copies the sums into `nanoseconds`; `count` must be the model's node_count. */
BITEDGE_API bitedge_status bitedge_context_profile(const bitedge_context* context, uint64_t* nanoseconds, size_t count);

#ifdef __cplusplus
}
#endif

#endif /* BITEDGE_H */
