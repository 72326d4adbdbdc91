// `bitedge-bench kernels`: the binary layers of the networks on every set of kernels, next to the bare loop.
#pragma once

#include <string>
#include <vector>

namespace bitedge {

struct KernelBench {
  std::vector<std::string> sets;  // empty: all that are available
  int rounds = 200;
  bool json = false;
};

void bench_kernels(const KernelBench& options);

}  // namespace bitedge
