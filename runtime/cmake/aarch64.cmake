# Cross-compile for 64-bit ARM and run the tests under qemu-user:
#
#   cmake -S runtime -B build/aarch64 -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64.cmake -DBITEDGE_TESTS=ON
#   cmake --build build/aarch64 && ctest --test-dir build/aarch64
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
# The static program first: the other has plugins, for counting, and aborts where a forked child starts threads.
find_program(BITEDGE_QEMU NAMES qemu-aarch64-static qemu-aarch64)
if(BITEDGE_QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR "${BITEDGE_QEMU};-L;/usr/aarch64-linux-gnu")
endif()
