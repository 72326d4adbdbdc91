#include "base/aligned.h"

#include <cstring>
#include <new>

#include "base/budget.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace bitedge {
namespace {

constexpr size_t kLine = 64, kHugePage = size_t(2) << 20;

}  // namespace

AlignedBlock::AlignedBlock(size_t bytes) : alignment(bytes >= kHugePage ? kHugePage : kLine) {
  Budget::charge(bytes);
  const size_t whole = (bytes + alignment - 1) / alignment * alignment;
  data = ::operator new(whole, std::align_val_t(alignment));
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  if (alignment == kHugePage) (void)madvise(data, whole, MADV_HUGEPAGE);  // only a wish
#endif
  std::memset(data, 0, bytes);
}

AlignedBlock::~AlignedBlock() { ::operator delete(data, std::align_val_t(alignment)); }

}  // namespace bitedge
