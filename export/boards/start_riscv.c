/* Start of a program on a 32-bit RISC-V without an operating system, and semihosting. */
#include "board.h"

extern uint32_t data_load[], data_start[], data_end[], bss_start[], bss_end[];

__attribute__((used)) static void start(void) {
  uint32_t *to, *from = data_load;
  for (to = data_start; to < data_end;) *to++ = *from++;
  for (to = bss_start; to < bss_end;) *to++ = 0;
  board_exit(board_main());
}

__attribute__((used, aligned(4))) static void fault(void) {
  board_print("fault\n");
  board_exit(3);
}

__attribute__((naked, section(".vectors"))) void board_start(void) {
  __asm__ volatile(
      ".option arch, +zicsr\n"
      "la sp, stack_top\n"
      "la t0, fault\n"
      "csrw mtvec, t0\n"
      "j start\n");
}

__attribute__((noinline)) uint32_t board_call(uint32_t operation, const void* argument) {
  register uint32_t a0 __asm__("a0") = operation;
  register const void* a1 __asm__("a1") = argument;
  __asm__ volatile(
      ".option push\n .option norvc\n .balign 16\n"
      "slli x0, x0, 0x1f\n ebreak\n srai x0, x0, 7\n"
      ".option pop\n"
      : "+r"(a0)
      : "r"(a1)
      : "memory");
  return a0;
}

uint32_t* board_stack(void) {
  uint32_t* pointer;
  __asm__ volatile("mv %0, sp" : "=r"(pointer));
  return pointer;
}
