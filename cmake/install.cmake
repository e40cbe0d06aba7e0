# SPDX-License-Identifier: MIT
# What is installed: the program, the kernel interface (plumb/kernel.h) with a CMake package and a pkg-config module to find both
# by, the golden files that ship, the template of a project of kernels, and the pages. The same package is in the build tree:
# -DCMAKE_PREFIX_PATH=build/release serves as well as an install prefix. The library is not installed: CONTRIBUTING.md says why.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/plumbline)
set(data_dir ${CMAKE_INSTALL_DATADIR}/plumbline)

# The build tree has the header under its installed name too: build/.../include/plumb/kernel.h
configure_file(${PROJECT_SOURCE_DIR}/core/plumb_kernel.h ${PROJECT_BINARY_DIR}/include/plumb/kernel.h COPYONLY)
add_library(plumb_kernel INTERFACE)
set_target_properties(plumb_kernel PROPERTIES EXPORT_NAME kernel)
target_include_directories(plumb_kernel INTERFACE
  $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

install(TARGETS plumb EXPORT plumbline RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS plumb_kernel EXPORT plumbline)
install(FILES ${PROJECT_BINARY_DIR}/include/plumb/kernel.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/plumb)

# The CMake package: plumbline::kernel, plumbline::plumb, plumbline_GOLDEN_DIR. Files of the package beside its config are
# listed once, for both places.
set(package_files "")
foreach(file PlumbTest.cmake)
  if(EXISTS ${PROJECT_SOURCE_DIR}/cmake/${file})
    list(APPEND package_files ${PROJECT_SOURCE_DIR}/cmake/${file})
    configure_file(${PROJECT_SOURCE_DIR}/cmake/${file} ${PROJECT_BINARY_DIR}/${file} COPYONLY)
  endif()
endforeach()
install(EXPORT plumbline FILE plumblineTargets.cmake NAMESPACE plumbline:: DESTINATION ${package_dir})
export(EXPORT plumbline FILE ${PROJECT_BINARY_DIR}/plumblineTargets.cmake NAMESPACE plumbline::)
set(golden_dir ${data_dir}/golden)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/plumblineConfig.cmake.in ${PROJECT_BINARY_DIR}/installed/plumblineConfig.cmake
  INSTALL_DESTINATION ${package_dir} PATH_VARS golden_dir NO_CHECK_REQUIRED_COMPONENTS_MACRO)
set(golden_dir ${PROJECT_SOURCE_DIR}/golden)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/plumblineConfig.cmake.in ${PROJECT_BINARY_DIR}/plumblineConfig.cmake
  INSTALL_DESTINATION ${PROJECT_BINARY_DIR} INSTALL_PREFIX ${PROJECT_BINARY_DIR} PATH_VARS golden_dir NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/plumblineConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/installed/plumblineConfig.cmake ${PROJECT_BINARY_DIR}/plumblineConfigVersion.cmake ${package_files}
  DESTINATION ${package_dir})

# pkg-config: the prefix is found from the place of the file, so that an installed tree can be moved.
file(RELATIVE_PATH up "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" /prefix)
if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
  set(pc_prefix ${CMAKE_INSTALL_PREFIX})
else()
  string(REGEX REPLACE "/$" "" up "${up}")
  set(pc_prefix "\${pcfiledir}/${up}")
endif()
configure_file(${PROJECT_SOURCE_DIR}/cmake/plumbline.pc.in ${PROJECT_BINARY_DIR}/plumbline.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/plumbline.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/tools/template DESTINATION ${data_dir})
foreach(folder tiny tiny-nvfp4 tiny-fp8 turned cases)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/golden/${folder} DESTINATION ${data_dir}/golden)
endforeach()
install(FILES LICENSE README.md NEWS.md CONTRIBUTING.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs DESTINATION ${CMAKE_INSTALL_DOCDIR})
