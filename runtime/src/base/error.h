// The one exception of the core. It never crosses the C API: capi.cpp turns it into a status and a message.
#pragma once

#include <exception>
#include <string>
#include <utility>

namespace bitedge {

// The values are those of `bitedge_status` in include/bitedge/bitedge.h, where each is documented.
enum class Status : int {
  kOk = 0,
  kArgument = 1,
  kIo = 2,
  kFormat = 3,
  kVersion = 4,
  kChecksum = 5,
  kUnavailable = 6,
  kGolden = 7,
  kMemory = 8,
  kInternal = 9,
};

struct Error : std::exception {
  Error(Status status, std::string text) : code(status), message(std::move(text)) {}
  const char* what() const noexcept override { return message.c_str(); }

  Status code;
  std::string message;
};

}  // namespace bitedge
