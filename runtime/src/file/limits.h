// The limits of docs/format.md. A reader that keeps them cannot overflow: every product below fits its type.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitedge::limits {

constexpr uint64_t kKeyValues = 65536;
constexpr uint64_t kTensors = 16384;
constexpr uint32_t kDimensions = 4;
constexpr uint64_t kStringBytes = 1 << 20;
constexpr uint64_t kArrayElements = 1 << 20;
constexpr uint32_t kNodes = 4096;
constexpr uint64_t kValueElements = uint64_t(1) << 28;
constexpr uint32_t kWindow = 65535;            // any kernel, stride, pad or dilation
constexpr uint64_t kTaps = uint64_t(1) << 23;  // |acc| fits a float32 exactly
constexpr uint64_t kImageTaps = 65536;         // the same, for pixels of up to 255
constexpr size_t kSteps = 16;                  // of an epilogue
constexpr uint64_t kAlignment = 32;

}  // namespace bitedge::limits
