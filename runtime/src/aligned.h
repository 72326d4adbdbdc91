// An array on a cache line's boundary, filled with zeros, which is what kernels read their weights from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

namespace bitedge {

template <typename T>
class Aligned {
 public:
  Aligned() = default;
  explicit Aligned(size_t size) : block_(new unsigned char[size * sizeof(T) + 64]), size_(size) {
    const auto address = reinterpret_cast<uintptr_t>(block_.get());
    data_ = reinterpret_cast<T*>(block_.get() + (64 - address % 64) % 64);
    std::memset(static_cast<void*>(data_), 0, size * sizeof(T));
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }

 private:
  std::unique_ptr<unsigned char[]> block_;
  T* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace bitedge
