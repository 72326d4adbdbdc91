# The kernels of bitedge_core. One instruction set per file, and the flags that it needs on that file alone; the rest of
# the core is compiled for the architecture's baseline.
target_sources(bitedge_core PRIVATE kernels/scalar.cpp kernels/table.cpp)
