/* Included before a network's own code: a mark after every value. */
#include <stdint.h>
void board_trace(uint32_t number, const void* address);
#define BITEDGE_TRACE(number, address) board_trace(number, address)
