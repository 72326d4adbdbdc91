# What `cmake --install` gives: headers, shared and static library, find_package(bitedge) and pkg-config. The wheel takes
# the shared library alone, under one name, since it cannot hold symbolic links.
if(SKBUILD)
  install(TARGETS bitedge LIBRARY DESTINATION bitedge/runtime)
  return()
endif()
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

file(STRINGS include/bitedge/bitedge.h BITEDGE_ABI REGEX "^#define BITEDGE_API_VERSION ")
string(REGEX MATCH "[0-9]+" BITEDGE_ABI "${BITEDGE_ABI}")
set_target_properties(bitedge PROPERTIES SOVERSION ${BITEDGE_ABI})

add_library(bitedge_static STATIC $<TARGET_OBJECTS:bitedge_core>)
set_target_properties(bitedge_static PROPERTIES OUTPUT_NAME bitedge LINKER_LANGUAGE CXX)
target_link_libraries(bitedge_static PUBLIC Threads::Threads)
target_include_directories(bitedge_static INTERFACE $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>)
add_library(bitedge::bitedge ALIAS bitedge)
add_library(bitedge::bitedge_static ALIAS bitedge_static)

set(BITEDGE_PACKAGE ${CMAKE_INSTALL_LIBDIR}/cmake/bitedge)
install(TARGETS bitedge bitedge_static EXPORT bitedge-targets INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY include/bitedge DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT bitedge-targets NAMESPACE bitedge:: DESTINATION ${BITEDGE_PACKAGE})
configure_package_config_file(cmake/bitedge-config.cmake.in bitedge-config.cmake INSTALL_DESTINATION ${BITEDGE_PACKAGE})
write_basic_package_version_file(bitedge-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/bitedge-config.cmake" "${CMAKE_CURRENT_BINARY_DIR}/bitedge-config-version.cmake"
        DESTINATION ${BITEDGE_PACKAGE})

file(RELATIVE_PATH BITEDGE_PC_PREFIX "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
configure_file(cmake/bitedge.pc.in bitedge.pc @ONLY)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/bitedge.pc" DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
