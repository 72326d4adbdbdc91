/* What the programs of this folder know of the board that they run on. */
#ifndef BOARD_H
#define BOARD_H

#include <stdint.h>

void board_start(void);
int board_main(void);

/* Semihosting: the emulator does what is asked for. */
uint32_t board_call(uint32_t operation, const void* argument);
void board_print(const char* text);
void board_print_number(const char* before, uint32_t number, const char* after);
void board_exit(int status);

/* The counting plugin notes how many instructions have run whenever this is called. */
void board_mark(uint32_t number);

/* The stack pointer. Fill the unused stack with a pattern; later give the number of bytes used below that call. */
uint32_t* board_stack(void);
void board_paint_stack(void);
uint32_t board_used_stack(void);

#endif
