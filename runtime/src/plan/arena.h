// Memory of one context: values whose lives do not overlap share bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/aligned.h"

namespace bitedge {

// A block that is written by step `first` and read for the last time by step `last`.
struct Life {
  uint64_t bytes = 0;
  int32_t first = 0, last = 0;
};

// Offsets such that no two blocks that are alive at the same step overlap: largest first, each at the lowest free
// offset. `total` receives the bytes that are needed. In 64 bits everywhere, so that no sum wraps on a small machine.
std::vector<uint64_t> place(const std::vector<Life>& lives, uint64_t* total);

class Arena {
 public:
  static constexpr uint64_t kAlignment = 64;
  static uint64_t round(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

  // Drops what was there first, so that both never exist at once. After std::bad_alloc it is empty.
  void reserve(uint64_t bytes);
  unsigned char* data() { return block_.data(); }
  size_t bytes() const { return block_.size(); }

 private:
  Aligned<unsigned char> block_;
};

}  // namespace bitedge
