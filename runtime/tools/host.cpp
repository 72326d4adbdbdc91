#include "host.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "base/cpu.h"
#include "base/text.h"
#include "kernels/kernels.h"
#include "kernels/table.h"

#if defined(__linux__)
#include <sched.h>
#endif
#include <sys/utsname.h>

namespace bitedge {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line.substr(0, line.find('\0'));
}

// x86 and most ARM kernels name the processor in cpuinfo, boards in their device tree.
std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    const std::string key = line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1);
    if (colon != std::string::npos && colon + 2 < line.size() && (key == "model name" || key == "Model")) {
      return line.substr(colon + 2);
    }
  }
  const std::string board = first_line("/proc/device-tree/model");
  return board.empty() ? "unknown" : board;
}

#if defined(__linux__)
// The cores that this process may use, fastest first: phones put their slow ones first.
std::vector<int> allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return {};
  std::vector<std::pair<long, int>> found;
  for (int core = 0; core < CPU_SETSIZE; core++) {
    if (!CPU_ISSET(core, &set)) continue;
    const std::string speed = first_line(join("/sys/devices/system/cpu/cpu", core, "/cpufreq/cpuinfo_max_freq"));
    found.emplace_back(-std::atol(speed.c_str()), core);
  }
  std::sort(found.begin(), found.end());
  std::vector<int> cores;
  for (const auto& [speed, core] : found) cores.push_back(core);
  return cores;
}
#else
std::vector<int> allowed_cores() { return {}; }
#endif

const std::vector<int>& cores_at_start() {
  static const std::vector<int> cores = allowed_cores();
  return cores;
}

}  // namespace

Host describe_host() {
  Host host;
  utsname names{};
  uname(&names);
  host.cpu = cpu_name();
  host.machine = names.machine;
  host.system = join(names.sysname, " ", names.release);
  host.features = cpu_feature_names();
  host.kernels = available_kernels().front()->name;
#if defined(__clang__)
  host.compiler = "clang " __clang_version__;
#else
  host.compiler = "gcc " __VERSION__;
#endif
  host.version = BITEDGE_VERSION;
  host.cores = cores_at_start().empty() ? int(std::thread::hardware_concurrency()) : int(cores_at_start().size());
  host.governor = first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  host.temperature_c = std::atof(first_line("/sys/class/thermal/thermal_zone0/temp").c_str()) / 1000;
  host.throttled = first_line("/sys/devices/platform/soc/soc:firmware/get_throttled");
  if (getloadavg(host.load, 3) != 3) host.load[0] = -1;
  return host;
}

void write_number(JsonWriter* json, double value, bool present) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  json->raw(present ? text : "null");
}

void write_host(JsonWriter* json, const Host& host) {
  const auto text = [&](const char* key, const std::string& value) {
    json->key(key);
    value.empty() ? json->null() : json->string(value);
  };
  json->open('{');
  text("cpu", host.cpu);
  text("machine", host.machine);
  json->key("cores").integer(host.cores);
  text("system", host.system);
  text("governor", host.governor);
  json->key("temperature_c");
  write_number(json, host.temperature_c, host.temperature_c != 0);
  text("throttled", host.throttled);
  json->key("load");
  if (host.load[0] < 0) {
    json->null();
  } else {
    json->open('[');
    for (const double load : host.load) write_number(json, load);
    json->close(']');
  }
  text("features", host.features);
  text("kernels", host.kernels);
  text("compiler", host.compiler);
  text("version", host.version);
  json->close('}');
}

void pin_to_cores(int count) {
  const std::vector<int>& cores = cores_at_start();
#if defined(__linux__)
  if (cores.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (size_t i = 0; i < std::min(size_t(count), cores.size()); i++) CPU_SET(size_t(cores[i]), &set);
  sched_setaffinity(0, sizeof set, &set);
#else
  (void)count;
#endif
}

}  // namespace bitedge
