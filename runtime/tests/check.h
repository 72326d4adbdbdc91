// A test program: TEST(name) { CHECK(...); CHECK_EQ(a, b); CHECK_ERROR(status, "part of the message", expression); }
// Each file tests/<name>_test.cpp is linked with main.cpp, which runs all of its tests, or those that are named.
#pragma once

#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "base/error.h"

namespace bitedge::testing {

struct Test {
  const char* name;
  std::function<void()> run;
};

inline std::vector<Test>& tests() {
  static std::vector<Test> list;
  return list;
}

inline int& failures() {
  static int count = 0;
  return count;
}

struct Registration {
  Registration(const char* name, std::function<void()> run) { tests().push_back({name, std::move(run)}); }
};

inline void fail(const char* file, int line, const std::string& message) {
  std::cerr << file << ":" << line << ": " << message << "\n";
  ++failures();
}

template <typename A, typename B>
void check_equal(const char* file, int line, const char* text, const A& a, const B& b) {
  if (a == b) return;
  std::cerr << file << ":" << line << ": " << text << ": " << a << " is not " << b << "\n";
  ++failures();
}

}  // namespace bitedge::testing

#define TEST(name)                                                              \
  static void name();                                                           \
  static const bitedge::testing::Registration registration_##name(#name, name); \
  static void name()

#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) bitedge::testing::fail(__FILE__, __LINE__, #condition); \
  } while (false)

#define CHECK_EQ(a, b) bitedge::testing::check_equal(__FILE__, __LINE__, #a " == " #b, a, b)

#define CHECK_ERROR(status, part, expression)                                                                      \
  do {                                                                                                             \
    try {                                                                                                          \
      (void)(expression);                                                                                          \
      bitedge::testing::fail(__FILE__, __LINE__, #expression " did not throw");                                    \
    } catch (const bitedge::Error& error) {                                                                        \
      if (error.code != (status) || error.message.find(part) == std::string::npos) {                               \
        bitedge::testing::fail(__FILE__, __LINE__,                                                                 \
                               #expression " threw \"" + error.message + "\", not \"" + std::string(part) + "\""); \
      }                                                                                                            \
    }                                                                                                              \
  } while (false)
