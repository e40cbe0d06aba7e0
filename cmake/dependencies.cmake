# SPDX-License-Identifier: MIT
# The libraries Plumb stands on; README.md says what each is for.
find_package(PkgConfig REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS C)
pkg_check_modules(CJSON REQUIRED IMPORTED_TARGET libcjson)
pkg_check_modules(OPENBLAS REQUIRED IMPORTED_TARGET openblas)
find_package(HDF5 REQUIRED COMPONENTS C)

add_library(plumb_dependencies INTERFACE)
target_include_directories(plumb_dependencies SYSTEM INTERFACE ${HDF5_INCLUDE_DIRS})
target_link_libraries(plumb_dependencies INTERFACE
  OpenMP::OpenMP_C PkgConfig::CJSON PkgConfig::OPENBLAS ${HDF5_LIBRARIES} m)
