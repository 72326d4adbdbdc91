#include "table.h"

#include <cstdlib>
#include <cstring>

#include "../src/cpu.h"
#include "../src/error.h"
#include "kernels.h"

namespace bitedge {

const KernelSet kScalarKernels = {"scalar", 0};

namespace {

constexpr const KernelSet* kTable[] = {&kScalarKernels};

}  // namespace

const std::vector<const KernelSet*>& available_kernels() {
  static const std::vector<const KernelSet*> available = [] {
    std::vector<const KernelSet*> sets;
    for (const KernelSet* set : kTable) {
      if ((set->features & cpu_features()) == set->features) sets.push_back(set);
    }
    return sets;
  }();
  return available;
}

const KernelSet& select_kernels(const char* name) {
  const char* wanted = name ? name : std::getenv("BITEDGE_KERNELS");
  if (!wanted || !*wanted) return *available_kernels().front();
  std::string names;
  for (const KernelSet* set : available_kernels()) {
    if (std::strcmp(set->name, wanted) == 0) return *set;
    names += (names.empty() ? "" : ", ") + std::string(set->name);
  }
  throw Error(Status::kUnavailable,
              "kernels '" + std::string(wanted) + "' are not available here; choose one of " + names);
}

}  // namespace bitedge
