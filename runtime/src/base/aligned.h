// An array on a cache line's boundary, filled with zeros, which is what kernels read their weights from.
#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <new>

namespace bitedge {

// Zeroed memory on a boundary of 64 bytes. Large blocks ask for huge pages: a dense layer streams through all of its
// weights for one image, and walking the table of small pages costs a fifth of that.
struct AlignedBlock {
  explicit AlignedBlock(size_t bytes);
  ~AlignedBlock();
  AlignedBlock(const AlignedBlock&) = delete;
  AlignedBlock& operator=(const AlignedBlock&) = delete;

  void* data;
  size_t alignment;
};

template <typename T>
class Aligned {
 public:
  Aligned() = default;
  explicit Aligned(size_t size)
      : block_(std::make_unique<AlignedBlock>(bytes(size))), data_(static_cast<T*>(block_->data)), size_(size) {}

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }

 private:
  static size_t bytes(size_t size) {
    if (size > std::numeric_limits<size_t>::max() / 2 / sizeof(T)) throw std::bad_alloc();
    return size * sizeof(T);
  }

  std::unique_ptr<AlignedBlock> block_;
  T* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace bitedge
