// `bitedge-bench epilogues`: what RSign and RPReLU cost in the blocks of BiRealNet18.
#pragma once

#include "bench_kernels.h"

namespace bitedge {

void bench_epilogues(const KernelBench& options);

}  // namespace bitedge
