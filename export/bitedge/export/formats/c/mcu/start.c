/* Only the operators that the network uses; see bitedge_mcu.h. */
#include <string.h>

#include "bitedge_mcu.h"

#if defined(__GNUC__)
#define BITEDGE_INLINE static inline __attribute__((always_inline))
#define BITEDGE_UNROLL _Pragma("GCC unroll 16")
#else
#define BITEDGE_INLINE static inline
#define BITEDGE_UNROLL
#endif
