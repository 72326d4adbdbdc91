/* A plugin for qemu: counts executed instructions, and writes the count whenever the function at `mark` is entered.
 *
 *   gcc -O2 -shared -fPIC -o libcount.so count.c
 *   qemu-system-arm ... -plugin ./libcount.so,mark=0x1234,out=counts.txt
 *
 * Every translated block adds its number of instructions when it is entered. A line of counts.txt is the total at one
 * entry of the function, that block's own instructions not yet or already included the same way each time.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The few declarations of qemu's plugin interface, version 1, that this uses. */
typedef uint64_t qemu_plugin_id_t;
typedef struct {
  const char* target_name;
  struct {
    int min, cur;
  } version;
  bool system_emulation;
  union {
    struct {
      int smp_vcpus, max_vcpus;
    } system;
  };
} qemu_info_t;
struct qemu_plugin_tb;
enum qemu_plugin_op { QEMU_PLUGIN_INLINE_ADD_U64 };
enum qemu_plugin_cb_flags { QEMU_PLUGIN_CB_NO_REGS };
extern void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, struct qemu_plugin_tb*));
extern void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, void*), void*);
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb*);
extern uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb*);
extern void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb*, enum qemu_plugin_op, void*, uint64_t);
extern void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb*, void (*)(unsigned, void*),
                                                 enum qemu_plugin_cb_flags, void*);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

static uint64_t total, mark;
static FILE* file;

static void entered(unsigned cpu, void* unused) {
  (void)cpu, (void)unused;
  fprintf(file, "%" PRIu64 "\n", total);
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb* tb) {
  (void)id;
  if (qemu_plugin_tb_vaddr(tb) == mark) {
    qemu_plugin_register_vcpu_tb_exec_cb(tb, entered, QEMU_PLUGIN_CB_NO_REGS, NULL);
  }
  qemu_plugin_register_vcpu_tb_exec_inline(tb, QEMU_PLUGIN_INLINE_ADD_U64, &total, qemu_plugin_tb_n_insns(tb));
}

static void finished(qemu_plugin_id_t id, void* unused) {
  (void)id, (void)unused;
  fclose(file);
}

__attribute__((visibility("default"))) int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t* info, int argc,
                                                               char** argv) {
  const char* path = "counts.txt";
  int i;
  (void)info;
  for (i = 0; i < argc; i++) {
    if (!strncmp(argv[i], "out=", 4)) path = argv[i] + 4;
    if (!strncmp(argv[i], "mark=", 5)) mark = strtoull(argv[i] + 5, NULL, 0);
  }
  file = fopen(path, "w");
  if (!file) return 1;
  qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
  qemu_plugin_register_atexit_cb(id, finished, NULL);
  return 0;
}
