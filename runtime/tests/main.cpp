#include <algorithm>
#include <cstring>

#include "check.h"

int main(int argc, char** argv) {
  int ran = 0;
  for (const auto& test : bitedge::testing::tests()) {
    const auto named = [&](const char* name) { return std::strcmp(name, test.name) == 0; };
    if (argc > 1 && std::none_of(argv + 1, argv + argc, named)) continue;
    const int before = bitedge::testing::failures();
    test.run();
    ++ran;
    std::cout << (bitedge::testing::failures() == before ? "ok   " : "FAIL ") << test.name << "\n";
  }
  return ran > 0 && bitedge::testing::failures() == 0 ? 0 : 1;
}
