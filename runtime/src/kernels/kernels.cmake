# The kernels of bitedge_core. One instruction set per file, and the flags that it needs on that file alone; the rest of
# the core is compiled for the architecture's baseline.
function(bitedge_kernel file)
  target_sources(bitedge_core PRIVATE src/kernels/${file})
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")  # it says so when a sanitizer keeps it from unrolling a loop
    list(APPEND ARGN -Wno-pass-failed)
  endif()
  set(level -O3)
  if(BITEDGE_SANITIZE)  # with all its checks, one file at -O3 takes gcc five minutes
    set(level -O1)
  endif()
  set_source_files_properties(src/kernels/${file} PROPERTIES COMPILE_OPTIONS "${level};${ARGN}")
endfunction()

target_sources(bitedge_core PRIVATE src/kernels/scalar.cpp src/kernels/scalar_maps.cpp src/kernels/table.cpp)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set(BITEDGE_AVX512 -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # its own intrinsics read a variable that they leave undefined on purpose
    list(APPEND BITEDGE_AVX512 -Wno-uninitialized -Wno-maybe-uninitialized)
  endif()
  bitedge_kernel(avx2.cpp -mavx2 -mfma -mf16c)
  bitedge_kernel(avx512.cpp ${BITEDGE_AVX512})
  bitedge_kernel(avx512vpopcntdq.cpp ${BITEDGE_AVX512} -mavx512vpopcntdq -mavx512vnni)
  bitedge_kernel(avx512vpopcntdq_half.cpp ${BITEDGE_AVX512} -mavx512vpopcntdq)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64|ARM64)$")
  bitedge_kernel(neon.cpp)
  bitedge_kernel(neondot.cpp -march=armv8.2-a+dotprod)
endif()

# The portable set, on whatever vectors there are.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  bitedge_kernel(portable.cpp -msse4.2 -mpopcnt)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(armv7|armv8l|arm$)")
  bitedge_kernel(portable.cpp -march=armv7-a -mfpu=neon-vfpv4)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^wasm")
  bitedge_kernel(portable.cpp -msimd128)
else()
  bitedge_kernel(portable.cpp)
endif()
