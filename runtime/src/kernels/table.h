// The one table of kernel sets, best first. A set is available when this build has it and the CPU and the operating
// system support it; scalar always is.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace bitedge {

struct KernelSet;

// Every set of this build, best first, whether this CPU can run it or not.
const std::vector<const KernelSet*>& built_kernels();

// Every available set, best first.
const std::vector<const KernelSet*>& available_kernels();

// The set of that name; null takes BITEDGE_KERNELS from the environment, or else the best one. Throws
// Error(kUnavailable) with the list of what is available.
const KernelSet& select_kernels(const char* name);

}  // namespace bitedge
