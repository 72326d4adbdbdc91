// SHA-256 (FIPS 180-4), by the CPU's own instructions where it has them: a model is hashed whole before its first
// answer.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <string>

namespace bitedge {

class Sha256 {
 public:
  void update(const void* data, size_t size);
  std::string hex();  // 64 lower-case digits; the object is spent afterwards

 private:
  uint32_t state_[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  uint8_t buffer_[64];
  size_t buffered_ = 0;
  uint64_t total_ = 0;
};

}  // namespace bitedge
