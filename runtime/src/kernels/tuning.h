// Sizes that were found by measuring on one kind of CPU or another. They change the speed, never the result.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitedge::tuning {

// Weights of a block that stay in the first cache (32 or 48 KB) beside the map, while the kernel walks over the pixels.
constexpr size_t kFirstCacheWeights = 20 << 10;

// Weights that every thread may read from its second cache; more than that is cut by channels rather than by pixels.
constexpr size_t kSecondCacheWeights = 64 << 10;

// Parts of a layer per thread: small enough that a core which is slower than the others holds nobody up.
constexpr size_t kPartsPerThread = 8;

// Tiles of a stem that are computed together: with the transforms of 44 (four rows of XnorNet's 11), the weights pass
// through the second cache once for all of them.
constexpr int32_t kStemStrip = 44;

// A core counts about 1,200 products in the nanosecond in which 16 bytes come from memory beside it.
constexpr size_t kProductsPerByte = 64;

}  // namespace bitedge::tuning
