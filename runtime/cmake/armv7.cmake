# Cross-compile for 32-bit ARM and run the tests under qemu-user, as cmake/aarch64.cmake does for 64 bits.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR armv7)
set(CMAKE_C_COMPILER arm-linux-gnueabihf-gcc)
set(CMAKE_CXX_COMPILER arm-linux-gnueabihf-g++)
find_program(BITEDGE_QEMU_ARM NAMES qemu-arm-static qemu-arm)
if(BITEDGE_QEMU_ARM)
  set(CMAKE_CROSSCOMPILING_EMULATOR "${BITEDGE_QEMU_ARM};-L;/usr/arm-linux-gnueabihf")
endif()
