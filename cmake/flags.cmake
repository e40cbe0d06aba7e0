# SPDX-License-Identifier: MIT
# Compiler flags every part shares. Numerics: IEEE binary32 and binary64 as written, so no fast-math and no contraction;
# a fused multiply-add happens only where the source says fma or fmaf.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

add_library(plumb_flags INTERFACE)
target_compile_definitions(plumb_flags INTERFACE _GNU_SOURCE)
target_compile_options(plumb_flags INTERFACE
  $<$<COMPILE_LANGUAGE:C,CXX>:-Wall;-Wextra;-Werror;-Wshadow;-Wvla;-ffp-contract=off;-fno-fast-math>
  $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes;-Wmissing-prototypes;-Wdouble-promotion>)

# fmaf must be one instruction: a library call is right but a hundred times slower. Every x86-64 since 2013 (x86-64-v3)
# and every aarch64 has it.
include(CheckCCompilerFlag)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_options(plumb_flags INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-mavx2;-mfma;-mf16c>)
endif()
if(PLUMB_NATIVE)
  target_compile_options(plumb_flags INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-march=native>)
endif()
if(PLUMB_SANITIZE)
  # What null and object-size look for faults under AddressSanitizer too; at every access they cost a third of a build's
  # and of a run's time.
  set(sanitizers -fsanitize=address,undefined -fno-sanitize=null,object-size -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_compile_options(plumb_flags INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:${sanitizers}>)
  # With -O1 gcc sees other ranges, and warns of texts that are cut on purpose; the release build has the warning.
  target_compile_options(plumb_flags INTERFACE $<$<COMPILE_LANG_AND_ID:C,GNU>:-Wno-format-truncation>)
  target_link_options(plumb_flags INTERFACE ${sanitizers})
endif()

# Kernels for H200 and GB10: the two machines come from these options, not from CMake's list of architectures. Only the
# top folder can enable a language for the others.
set(PLUMB_NVCC_NUMERICS --fmad=false -prec-div=true -prec-sqrt=true)
if(PLUMB_CUDA)
  set(CMAKE_CUDA_ARCHITECTURES OFF)
  set(CMAKE_CUDA_STANDARD 17)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  enable_language(CUDA)
  set(PLUMB_NVCC_OPTIONS ${PLUMB_NVCC_NUMERICS} -Werror=all-warnings
    "SHELL:-gencode arch=compute_90,code=sm_90" "SHELL:-gencode arch=compute_121,code=sm_121")
endif()
