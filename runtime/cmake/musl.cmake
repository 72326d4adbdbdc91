# Build for musl instead of glibc, with the compiler and libc++ of PyPI's ziglang; the programs are static and run here:
#
#   pip install ziglang
#   cmake -S runtime -B build/musl -DCMAKE_TOOLCHAIN_FILE=cmake/musl.cmake -DBITEDGE_TESTS=ON
#   cmake --build build/musl && ctest --test-dir build/musl
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${CMAKE_HOST_SYSTEM_PROCESSOR})
find_program(BITEDGE_ZIG NAMES python-zig zig REQUIRED)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES BITEDGE_ZIG)
set(CMAKE_C_COMPILER "${BITEDGE_ZIG}" cc -target ${CMAKE_SYSTEM_PROCESSOR}-linux-musl)
set(CMAKE_CXX_COMPILER "${BITEDGE_ZIG}" c++ -target ${CMAKE_SYSTEM_PROCESSOR}-linux-musl)
