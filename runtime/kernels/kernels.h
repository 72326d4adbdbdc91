// What a set of kernels is: plain structs and function pointers, so that a file compiled for one instruction set
// includes nothing that could leave a copy of itself in the others (no templates of the standard library).
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace bitedge {

struct KernelSet {
  const char* name;
  uint32_t features;  // all of these CpuFeature bits are needed
};

extern const KernelSet kScalarKernels;

}  // namespace bitedge
