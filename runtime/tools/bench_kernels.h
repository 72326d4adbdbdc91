// `bitedge-bench kernels`: the binary layers of the networks on every set of kernels, next to the bare loop, and layers
// of floats next to their roofline.
#pragma once

#include <string>
#include <vector>

namespace bitedge {

struct KernelSet;

struct KernelBench {
  std::vector<std::string> sets;  // empty: all that are available
  int rounds = 200;
  bool json = false;
};

// The sets that are asked for; all but the reference when none is.
std::vector<const KernelSet*> kernel_sets(const KernelBench& options);

void bench_kernels(const KernelBench& options);

}  // namespace bitedge
