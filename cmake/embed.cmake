# SPDX-License-Identifier: MIT
# plumb_embed(INPUT OUTPUT SYMBOL HEADER): a C file that holds the bytes of INPUT as `const char SYMBOL[]`, NUL-terminated, and
# their number as `const size_t SYMBOL_size`; HEADER declares both. Bytes as numbers, so no content needs escaping. Made
# when configuring, and configuring runs again when INPUT changes; as a script: cmake -DINPUT= -DOUTPUT= -DSYMBOL=
# -DHEADER= -P embed.cmake.
function(plumb_embed input output symbol header)
  file(READ "${input}" bytes HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  string(REGEX REPLACE "(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)" "\t\\1\n" bytes "${bytes}")
  get_filename_component(name "${input}" NAME)
  set(text "/* SPDX-License-Identifier: MIT */\n/* ${name}, made by cmake/embed.cmake. */\n#include \"${header}\"\n\n")
  string(APPEND text "const char ${symbol}[] = {\n${bytes}\n\t0x00,\n};\n")
  string(APPEND text "const size_t ${symbol}_size = sizeof ${symbol} - 1;\n")
  set(old "")
  if(EXISTS "${output}")
    file(READ "${output}" old)
  endif()
  if(NOT old STREQUAL text) # keep the time stamp of what did not change
    file(WRITE "${output}" "${text}")
  endif()
endfunction()

if(CMAKE_SCRIPT_MODE_FILE)
  plumb_embed("${INPUT}" "${OUTPUT}" "${SYMBOL}" "${HEADER}")
endif()
