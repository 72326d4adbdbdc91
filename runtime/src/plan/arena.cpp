#include "plan/arena.h"

#include <algorithm>
#include <limits>
#include <new>
#include <numeric>

namespace bitedge {

std::vector<uint64_t> place(const std::vector<Life>& lives, uint64_t* total) {
  std::vector<size_t> order(lives.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return lives[a].bytes > lives[b].bytes; });

  std::vector<uint64_t> offsets(lives.size(), 0);
  std::vector<size_t> placed;  // by ascending offset
  *total = 0;
  for (const size_t i : order) {
    const uint64_t bytes = Arena::round(lives[i].bytes);
    uint64_t offset = 0;
    for (const size_t other : placed) {
      const bool together = lives[other].first <= lives[i].last && lives[i].first <= lives[other].last;
      if (!together || offsets[other] + Arena::round(lives[other].bytes) <= offset) continue;
      if (offset + bytes <= offsets[other]) break;
      offset = offsets[other] + Arena::round(lives[other].bytes);
    }
    offsets[i] = offset;
    const auto after =
        std::upper_bound(placed.begin(), placed.end(), i, [&](size_t a, size_t b) { return offsets[a] < offsets[b]; });
    placed.insert(after, i);
    *total = std::max(*total, offset + bytes);
  }
  return offsets;
}

void Arena::reserve(uint64_t bytes) {
  block_ = Aligned<unsigned char>();
  if (bytes > std::numeric_limits<size_t>::max() / 2) throw std::bad_alloc();
  block_ = Aligned<unsigned char>(size_t(bytes));
}

}  // namespace bitedge
