# SPDX-License-Identifier: MIT
# Toolchain file: an x86-64 machine builds for aarch64, the CPU of a GB10. tools/cross.sh makes the folder of libraries that
# PLUMB_SYSROOT names and uses this; programs of the build run through qemu, so ctest works in such a build too.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES PLUMB_SYSROOT)
if(NOT IS_DIRECTORY "${PLUMB_SYSROOT}/usr/lib/aarch64-linux-gnu")
  message(FATAL_ERROR "PLUMB_SYSROOT is '${PLUMB_SYSROOT}', expected a folder with aarch64 libraries (tools/cross.sh makes one)")
endif()
set(CMAKE_SYSROOT "${PLUMB_SYSROOT}")
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

# OpenBLAS's own folder: the link from the common one is made by update-alternatives, which never ran in the sysroot.
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${PLUMB_SYSROOT}")
set(libraries "${PLUMB_SYSROOT}/usr/lib/aarch64-linux-gnu")
set(ENV{PKG_CONFIG_LIBDIR} "${libraries}/pkgconfig:${libraries}/openblas-pthread/pkgconfig:${PLUMB_SYSROOT}/usr/share/pkgconfig")

set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L "${PLUMB_SYSROOT}")
