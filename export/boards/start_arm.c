/* Start of a program on a Cortex-M without an operating system, and semihosting. */
#include "board.h"

extern uint32_t stack_top[], data_load[], data_start[], data_end[], bss_start[], bss_end[];

void board_start(void) {
  uint32_t *to, *from = data_load;
#if defined(__ARM_FP) || defined(__ARM_FEATURE_MVE)
  *(volatile uint32_t*)0xe000ed88 |= 0xfu << 20; /* CPACR: the floating-point unit and vectors may be used */
  __asm__ volatile("dsb\n isb");
#endif
  for (to = data_start; to < data_end;) *to++ = *from++;
  for (to = bss_start; to < bss_end;) *to++ = 0;
  board_exit(board_main());
}

static void fault(void) {
  board_print("fault\n");
  board_exit(3);
}

/* Stack, reset, and the same handler for every exception. */
__attribute__((section(".vectors"), used)) static void* const vectors[16] = {
    stack_top,    (void*)board_start, (void*)fault, (void*)fault, (void*)fault, (void*)fault,
    (void*)fault, (void*)fault,       (void*)fault, (void*)fault, (void*)fault, (void*)fault,
    (void*)fault, (void*)fault,       (void*)fault, (void*)fault};

uint32_t board_call(uint32_t operation, const void* argument) {
  register uint32_t r0 __asm__("r0") = operation;
  register const void* r1 __asm__("r1") = argument;
  __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
  return r0;
}

uint32_t* board_stack(void) {
  uint32_t* pointer;
  __asm__ volatile("mov %0, sp" : "=r"(pointer));
  return pointer;
}
