// SHA-256 (FIPS 180-4).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace bitedge {

class Sha256 {
 public:
  void update(const void* data, size_t size);
  std::string hex();  // 64 lower-case digits; the object is spent afterwards

 private:
  void compress(const uint8_t* blocks, size_t count);

  uint32_t state_[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  uint8_t buffer_[64];
  size_t buffered_ = 0;
  uint64_t total_ = 0;
};

}  // namespace bitedge
