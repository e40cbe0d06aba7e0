# SPDX-License-Identifier: MIT
# What is installed: the program, the kernel interface (plumb/kernel.h) with a CMake package and a pkg-config module to find it by,
# and the template of a project that uses it.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/plumbline)

# The build tree has the header under its installed name too: build/.../include/plumb/kernel.h
configure_file(${PROJECT_SOURCE_DIR}/core/plumb_kernel.h ${PROJECT_BINARY_DIR}/include/plumb/kernel.h COPYONLY)
add_library(plumb_kernel INTERFACE)
set_target_properties(plumb_kernel PROPERTIES EXPORT_NAME kernel)
target_include_directories(plumb_kernel INTERFACE
  $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

install(TARGETS plumb RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES ${PROJECT_BINARY_DIR}/include/plumb/kernel.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/plumb)
install(TARGETS plumb_kernel EXPORT plumbline)
install(EXPORT plumbline FILE plumblineTargets.cmake NAMESPACE plumbline:: DESTINATION ${package_dir})
file(WRITE ${PROJECT_BINARY_DIR}/plumblineConfig.cmake "include(\"\${CMAKE_CURRENT_LIST_DIR}/plumblineTargets.cmake\")\n")
write_basic_package_version_file(${PROJECT_BINARY_DIR}/plumblineConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/plumblineConfig.cmake ${PROJECT_BINARY_DIR}/plumblineConfigVersion.cmake DESTINATION ${package_dir})
configure_file(${PROJECT_SOURCE_DIR}/cmake/plumbline.pc.in ${PROJECT_BINARY_DIR}/plumbline.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/plumbline.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/tools/template DESTINATION ${CMAKE_INSTALL_DATADIR}/plumbline)
