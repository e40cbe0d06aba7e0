# SPDX-License-Identifier: MIT
# ctest entries that hold kernels of your own against Plumb's reference; part of the package: find_package(plumbline).
#
#   plumb_add_kernel_test(NAME OP KERNEL
#     [GOLDEN FILE.h5 CHECKPOINT DIR]      what it is compared with (default: golden/tiny, which comes with Plumb)
#     [CASES FILE.h5...]                   recorded calls to replay instead of a golden file: milliseconds, no checkpoint
#     [HOSTILE]                            plumb test instead: generated inputs, odd sizes, every weight format; no golden file,
#                                          and what none shows: those of golden/tiny have no tail behind a vector of 16. Of several
#                                          ops joined: plumb bisect on a generated model of odd sizes (ARGS --profile NAME: its formats)
#     [LAYERS A-B] [VIEW local|propagated|both] [POLICY f32|bf16] [DEVICE simt|cuda] [TIMEOUT SECONDS]
#     [LABELS LABEL...] [JUNIT DIR] [ARGS OPTION...])
#
# OP: an op of `plumb list ops`, several joined by '+', or `all` that the kernel offers. KERNEL: a target of this project (a MODULE or
# SHARED library) or the path of a shared object. A target is built first, by a test of its own that the others need (a fixture), so
# that ctest alone is enough after an edit; the golden file's checksums are another.
# Labels: plumb, the op, simt or gpu, and yours: ctest -L plumb. A test with DEVICE cuda asks for one GPU of a resource
# specification (ctest --resource-spec-file; share/plumbline/ci/resource-spec.sh writes one), so that several GPUs share a run; where
# there is no GPU it is skipped. It fails when plumb says so, and as an error when the kernel crashes or hangs (TIMEOUT, default 300).

# The program in front of a test that takes a GPU: makes the one that ctest gave it the only one that is seen.
# (Lines, not semicolons, which would make a list of it.)
set(PLUMB_ON_GPU sh -c [=[g=${CTEST_RESOURCE_GROUP_0_GPUS:-}
g=${g#id:}
[ -z "$g" ] || export CUDA_VISIBLE_DEVICES="${g%%,*}"
exec "$0" "$@"]=])

function(_plumb_find_program out)
  if(TARGET plumbline::plumb)
    set(${out} $<TARGET_FILE:plumbline::plumb> PARENT_SCOPE)
    return()
  endif()
  find_program(PLUMB_PROGRAM plumb DOC "The program plumb")
  if(NOT PLUMB_PROGRAM)
    message(FATAL_ERROR "plumb_add_kernel_test: no program plumb; expected find_package(plumbline), plumb on PATH or -DPLUMB_PROGRAM=")
  endif()
  set(${out} ${PLUMB_PROGRAM} PARENT_SCOPE)
endfunction()

# A test that others need, once: _plumb_fixture(NAME FIXTURE COMMAND...)
function(_plumb_fixture name fixture)
  string(REGEX REPLACE "^.*\\.build$" "plumb.build" fixture_lock ${name})
  get_property(made DIRECTORY PROPERTY "plumb_made_${name}")
  if(NOT made)
    add_test(NAME ${name} COMMAND ${ARGN})
    # two builds of one folder must not run at once
    set_tests_properties(${name} PROPERTIES FIXTURES_SETUP ${fixture} LABELS plumb RESOURCE_LOCK ${fixture_lock})
    set_property(DIRECTORY PROPERTY "plumb_made_${name}" TRUE)
  endif()
endfunction()

function(plumb_add_kernel_test name op kernel)
  cmake_parse_arguments(K "HOSTILE" "GOLDEN;CHECKPOINT;LAYERS;VIEW;POLICY;DEVICE;TIMEOUT;JUNIT" "CASES;LABELS;ARGS" ${ARGN})
  if(K_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "plumb_add_kernel_test(${name}): what is '${K_UNPARSED_ARGUMENTS}'? expected the words at the top of PlumbTest.cmake")
  endif()
  if(DEFINED K_GOLDEN AND NOT DEFINED K_CHECKPOINT OR DEFINED K_CHECKPOINT AND NOT DEFINED K_GOLDEN)
    message(FATAL_ERROR "plumb_add_kernel_test(${name}): expected GOLDEN and CHECKPOINT together")
  endif()
  if(NOT DEFINED K_DEVICE)
    set(K_DEVICE simt)
  elseif(NOT K_DEVICE MATCHES "^(simt|cuda)$")
    message(FATAL_ERROR "plumb_add_kernel_test(${name}): DEVICE is '${K_DEVICE}', expected simt or cuda")
  endif()
  if(NOT DEFINED K_TIMEOUT)
    set(K_TIMEOUT 300)
  endif()
  _plumb_find_program(plumb)

  set(fixtures "")
  if(TARGET ${kernel})
    set(file $<TARGET_FILE:${kernel}>)
    _plumb_fixture(${kernel}.build plumb.${kernel} ${CMAKE_COMMAND} --build ${CMAKE_BINARY_DIR} --target ${kernel} --config $<CONFIG>)
    list(APPEND fixtures plumb.${kernel})
  else()
    get_filename_component(file ${kernel} ABSOLUTE BASE_DIR ${CMAKE_CURRENT_SOURCE_DIR})
  endif()

  set(seat ${op})
  if(DEFINED K_LAYERS)
    string(APPEND seat "@${K_LAYERS}")
  endif()
  if(K_HOSTILE)
    foreach(word CASES VIEW GOLDEN LAYERS JUNIT)
      if(DEFINED K_${word})
        message(FATAL_ERROR "plumb_add_kernel_test(${name}): HOSTILE makes its own inputs, and goes without ${word}")
      endif()
    endforeach()
    set(command test)
    if(op MATCHES "[+]")
      set(command bisect --synthetic small --tokens 5,17,42,3,99,7,23)
    endif()
    if(DEFINED K_POLICY)
      list(APPEND command --policy ${K_POLICY})
    endif()
  elseif(DEFINED K_CASES)
    set(command replay)
    foreach(case ${K_CASES})
      get_filename_component(case ${case} ABSOLUTE BASE_DIR ${CMAKE_CURRENT_SOURCE_DIR})
      list(APPEND command ${case})
    endforeach()
    if(DEFINED K_VIEW OR DEFINED K_POLICY OR DEFINED K_GOLDEN OR DEFINED K_LAYERS OR DEFINED K_JUNIT)
      message(FATAL_ERROR "plumb_add_kernel_test(${name}): a case has its own layer and policy; CASES goes without GOLDEN, VIEW, POLICY, LAYERS and JUNIT")
    endif()
  else()
    if(NOT DEFINED K_GOLDEN)
      if(NOT plumbline_GOLDEN_DIR)
        message(FATAL_ERROR "plumb_add_kernel_test(${name}): no GOLDEN, and plumbline_GOLDEN_DIR is not set (find_package(plumbline) does)")
      endif()
      set(K_GOLDEN ${plumbline_GOLDEN_DIR}/tiny/tiny.h5)
      set(K_CHECKPOINT ${plumbline_GOLDEN_DIR}/tiny/checkpoint)
    endif()
    get_filename_component(K_GOLDEN ${K_GOLDEN} ABSOLUTE BASE_DIR ${CMAKE_CURRENT_SOURCE_DIR})
    get_filename_component(K_CHECKPOINT ${K_CHECKPOINT} ABSOLUTE BASE_DIR ${CMAKE_CURRENT_SOURCE_DIR})
    get_filename_component(base ${K_GOLDEN} NAME_WE)
    string(SHA1 key ${K_GOLDEN})
    string(SUBSTRING ${key} 0 8 key)
    _plumb_fixture(plumb.${base}.${key} plumb.golden.${key} ${plumb} golden verify ${K_GOLDEN} --checksums)
    list(APPEND fixtures plumb.golden.${key})
    set(command check ${K_GOLDEN} --checkpoint ${K_CHECKPOINT})
    foreach(option VIEW POLICY)
      if(DEFINED K_${option})
        string(TOLOWER ${option} word)
        list(APPEND command --${word} ${K_${option}})
      endif()
    endforeach()
    if(DEFINED K_JUNIT)
      get_filename_component(K_JUNIT ${K_JUNIT} ABSOLUTE BASE_DIR ${CMAKE_CURRENT_BINARY_DIR})
      file(MAKE_DIRECTORY ${K_JUNIT})
      list(APPEND command --junit ${K_JUNIT}/${name}.xml)
    endif()
  endif()
  list(APPEND command --op ${seat}=${file} ${K_ARGS})
  if(NOT K_HOSTILE) # whose failures are short, and each has the line that replays it
    list(APPEND command --quiet)
  endif()

  string(REPLACE "+" ";" ops ${op})
  set(labels plumb ${ops} ${K_LABELS})
  if(K_DEVICE STREQUAL cuda)
    add_test(NAME ${name} COMMAND ${PLUMB_ON_GPU} ${plumb} ${command} --device cuda)
    set_tests_properties(${name} PROPERTIES RESOURCE_GROUPS gpus:1)
    list(APPEND labels gpu)
  else()
    add_test(NAME ${name} COMMAND ${plumb} ${command})
    list(APPEND labels simt)
  endif()
  # exit status 3 of plumb: the asked device is not there
  set_tests_properties(${name} PROPERTIES LABELS "${labels}" SKIP_RETURN_CODE 3 TIMEOUT ${K_TIMEOUT} FIXTURES_REQUIRED "${fixtures}")
endfunction()
