/* Printing, leaving and the stack's high-water mark; the same for every board. */
#include "board.h"

extern uint32_t bss_end[];

static uint32_t* painted_top;

void board_print(const char* text) { board_call(0x04, text); }

void board_print_number(const char* before, uint32_t number, const char* after) {
  char digits[11];
  int at = 10;
  digits[at] = 0;
  do digits[--at] = (char)('0' + number % 10);
  while (number /= 10);
  board_print(before);
  board_print(digits + at);
  board_print(after);
}

void board_exit(int status) {
  const uint32_t reason = status == 0 ? 0x20026 : 0x20023;
  board_call(0x18, (const void*)(uintptr_t)reason);
  for (;;) {
  }
}

__attribute__((noinline)) void board_mark(uint32_t number) { __asm__ volatile("" : : "r"(number)); }

void board_paint_stack(void) {
  uint32_t* word;
  painted_top = board_stack();
  for (word = bss_end; word < painted_top; word++) *(volatile uint32_t*)word = 0xa5a5a5a5u;
}

uint32_t board_used_stack(void) {
  const volatile uint32_t* word = bss_end;
  while (word < painted_top && *word == 0xa5a5a5a5u) word++;
  return (uint32_t)((const char*)painted_top - (const char*)word);
}
