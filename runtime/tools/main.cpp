// bitedge-bench: measures the core where there is no Python.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "bench_kernels.h"
#include "src/error.h"

namespace {

constexpr char kUsage[] =
    "usage: bitedge-bench kernels [--kernels NAME[,NAME...]] [--rounds N] [--json]\n"
    "\n"
    "kernels   the binary layers of the networks on every set of kernels, next to the bare loop (one thread)\n";

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

int fail(const std::string& message) {
  std::fprintf(stderr, "bitedge-bench: %s\n", message.c_str());
  return 2;
}

int kernels(int count, char** arguments) {
  bitedge::KernelBench options;
  for (int i = 0; i < count; i++) {
    const std::string name = arguments[i];
    if (name == "--json") {
      options.json = true;
    } else if (name == "--kernels" && i + 1 < count) {
      options.sets = split(arguments[++i]);
    } else if (name == "--rounds" && i + 1 < count) {
      options.rounds = std::atoi(arguments[++i]);
      if (options.rounds < 1) return fail("--rounds wants a positive number, got " + std::string(arguments[i]));
    } else {
      return fail("unknown argument " + name + "; try --help");
    }
  }
  bitedge::bench_kernels(options);
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  const std::string verb = count > 1 ? arguments[1] : "--help";
  try {
    if (verb == "kernels") return kernels(count - 2, arguments + 2);
  } catch (const bitedge::Error& error) {
    return fail(error.what());
  }
  if (verb != "--help" && verb != "-h") return fail("unknown command " + verb + "; try --help");
  std::fputs(kUsage, stdout);
  return 0;
}
