# SPDX-License-Identifier: MIT
# The libraries Plumb stands on; README.md says what each is for.
find_package(PkgConfig REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS C)
pkg_check_modules(CJSON REQUIRED IMPORTED_TARGET libcjson)
pkg_check_modules(OPENBLAS REQUIRED IMPORTED_TARGET openblas)
if(CMAKE_CROSSCOMPILING) # CMake's module asks h5cc, which would answer for the machine that builds
  pkg_check_modules(HDF5 REQUIRED IMPORTED_TARGET hdf5-serial)
  set(HDF5_LIBRARIES PkgConfig::HDF5)
else()
  find_package(HDF5 REQUIRED COMPONENTS C)
endif()

add_library(plumb_dependencies INTERFACE)
target_include_directories(plumb_dependencies SYSTEM INTERFACE ${HDF5_INCLUDE_DIRS})
target_link_libraries(plumb_dependencies INTERFACE
  OpenMP::OpenMP_C PkgConfig::CJSON PkgConfig::OPENBLAS ${HDF5_LIBRARIES} m)
