#include "kernels/table.h"

#include <cstdlib>
#include <cstring>

#include "base/cpu.h"
#include "base/error.h"
#include "kernels/kernels.h"

namespace bitedge {
namespace {

// What the portable set is compiled for.
#if defined(__x86_64__)
constexpr uint32_t kPortable = kSse42;
#elif defined(__arm__)
constexpr uint32_t kPortable = kNeon;
#else
constexpr uint32_t kPortable = 0;
#endif

// Best first.
const KernelSet kTable[] = {
#if defined(__x86_64__)
    {"avx512vpopcntdq", kAvx512 | kAvx512Vnni | kAvx512Vpopcntdq, &kAvx512VpopcntdqBinary, &kAvx512VpopcntdqHalf,
     &kAvx512VnniImage, &kAvx512Float, &kAvx512Lanes, &kAvx512Stem, &kAvx512Rows},
    {"avx512", kAvx512, &kAvx512Binary, nullptr, &kAvx512Image, &kAvx512Float, &kAvx512Lanes, &kAvx512Stem,
     &kAvx512Rows},
    {"avx2", kAvx2, &kAvx2Binary, nullptr, &kAvx2Image, &kAvx2Float, &kAvx2Lanes, &kAvx2Stem, &kAvx2Rows},
#elif defined(__aarch64__)
    {"neondot", kNeon | kNeonDot, &kNeonDotBinary, nullptr, &kNeonDotImage, &kNeonFloat, &kNeonLanes, &kNeonStem,
     &kNeonRows},
    {"neon", kNeon, &kNeonBinary, nullptr, &kNeonImage, &kNeonFloat, &kNeonLanes, &kNeonStem, &kNeonRows},
#endif
    {"portable", kPortable, &kPortableBinary, nullptr, &kPortableImage, &kPortableFloat, &kPortableLanes,
     &kPortableStem, &kPortableRows},
    {"scalar", 0, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr},
};

}  // namespace

const std::vector<const KernelSet*>& built_kernels() {
  static const std::vector<const KernelSet*> built = [] {
    std::vector<const KernelSet*> sets;
    for (const KernelSet& set : kTable) sets.push_back(&set);
    return sets;
  }();
  return built;
}

const std::vector<const KernelSet*>& available_kernels() {
  static const std::vector<const KernelSet*> available = [] {
    std::vector<const KernelSet*> sets;
    for (const KernelSet& set : kTable) {
      if ((set.features & cpu_features()) == set.features) sets.push_back(&set);
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
