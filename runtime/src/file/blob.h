// The bytes of a model: a copy of a file or of the caller's memory, aligned and read only. A file is not mapped:
// whoever truncates it would end the process by a signal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace bitedge {

class Blob {
 public:
  // Throws Error{kIo}, or Error{kMemory} when the file is larger than `limit`.
  static Blob read(const std::string& path, uint64_t limit);
  static Blob copy(const void* data, size_t size);

  Blob(Blob&& other) noexcept;
  Blob(const Blob&) = delete;
  Blob& operator=(const Blob&) = delete;
  ~Blob();

  const uint8_t* data() const { return data_; }
  size_t size() const { return size_; }

  // Gives whole pages of this part back to the system: it will not be read again. Returns how many bytes.
  size_t drop(const void* part, size_t size);

 private:
  explicit Blob(size_t size);

  uint8_t* data_;
  size_t size_;
};

}  // namespace bitedge
