// The machine that a measurement ran on, and what may have disturbed it, as far as the system tells.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace bitedge {

struct Host {
  std::string cpu, machine, system, features, kernels, compiler, version;
  int cores = 0;             // that this process may use
  std::string governor;      // empty: not readable
  double temperature_c = 0;  // 0: not readable
  std::string throttled;     // of a Raspberry Pi: "0x0" when it never was; empty: not readable
  double load[3] = {-1, -1, -1};
};

Host describe_host();
void write_host(JsonWriter* json, const Host& host);

// A number that may be missing.
void write_number(JsonWriter* json, double value, bool present = true);

// Keeps the calling thread, and the threads that it starts from now on, to the `count` fastest cores of those that it
// had at the start of the process; where the system does not allow that, nothing happens.
void pin_to_cores(int count);

}  // namespace bitedge
