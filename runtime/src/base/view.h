// Elements that lie elsewhere.
#pragma once

#include <cstddef>

namespace bitedge {

// A tensor inside the file, as it was read. `data` is aligned to 32 bytes and lives as long as the model.
template <typename T>
struct View {
  const T* data = nullptr;
  size_t size = 0;
  explicit operator bool() const { return data != nullptr; }
  const T& operator[](size_t i) const { return data[i]; }
};

}  // namespace bitedge
