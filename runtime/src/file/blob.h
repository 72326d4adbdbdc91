// The bytes of a model: a mapped file, or a copy of the caller's memory. Either way aligned, and read only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace bitedge {

class Blob {
 public:
  static Blob map(const std::string& path);  // throws Error{kIo}
  static Blob copy(const void* data, size_t size);

  Blob(Blob&& other) noexcept;
  Blob(const Blob&) = delete;
  Blob& operator=(const Blob&) = delete;
  ~Blob();

  const uint8_t* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  Blob(uint8_t* data, size_t size, bool mapped) : data_(data), size_(size), mapped_(mapped) {}

  uint8_t* data_;
  size_t size_;
  bool mapped_;
};

}  // namespace bitedge
