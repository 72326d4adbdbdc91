#include "plan/arena.h"

#include <algorithm>
#include <numeric>

namespace bitedge {

std::vector<size_t> place(const std::vector<Life>& lives, size_t* total) {
  std::vector<size_t> order(lives.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return lives[a].bytes > lives[b].bytes; });

  std::vector<size_t> offsets(lives.size(), 0);
  std::vector<size_t> placed;  // by ascending offset
  *total = 0;
  for (const size_t i : order) {
    const size_t bytes = Arena::round(lives[i].bytes);
    size_t offset = 0;
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

void Arena::reserve(size_t bytes) {
  block_ = Aligned<unsigned char>();
  block_ = Aligned<unsigned char>(bytes);
}

}  // namespace bitedge
