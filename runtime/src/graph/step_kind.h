// The steps of an epilogue, in a header that kernels can include.
#pragma once

#include <stdint.h>

namespace bitedge {

enum class StepKind : uint8_t {
  kFma,
  kAdd,
  kMultiply,
  kRelu,
  kPrelu,
  kClamp,
  kHardsigmoid,
  kHardswish,
  kSigmoid,
  kTanh,
  kSilu,
  kGelu,
  kGeluTanh,
};

}  // namespace bitedge
