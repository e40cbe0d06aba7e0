# SPDX-License-Identifier: MIT
# The manual page and the completions of three shells, made by the program itself and installed where each is looked for; and the
# recipes of tools/ci. A cross build without an emulator has none of the first.
include(GNUInstallDirs)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/tools/ci DESTINATION ${CMAKE_INSTALL_DATADIR}/plumbline USE_SOURCE_PERMISSIONS)
if(CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR)
  return()
endif()
set(pages "")
foreach(page "plumb.1:man" "plumb.bash:completion bash" "_plumb:completion zsh" "plumb.fish:completion fish")
  string(REGEX REPLACE ":.*" "" file "${page}")
  string(REGEX REPLACE ".*:" "" words "${page}")
  separate_arguments(words)
  add_custom_command(OUTPUT ${PROJECT_BINARY_DIR}/${file} COMMAND plumb ${words} > ${PROJECT_BINARY_DIR}/${file} DEPENDS plumb VERBATIM)
  list(APPEND pages ${PROJECT_BINARY_DIR}/${file})
endforeach()
add_custom_target(plumb_pages ALL DEPENDS ${pages})
# OPTIONAL: a tree in which only the program was built can be installed too
install(FILES ${PROJECT_BINARY_DIR}/plumb.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 OPTIONAL)
install(FILES ${PROJECT_BINARY_DIR}/plumb.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME plumb OPTIONAL)
install(FILES ${PROJECT_BINARY_DIR}/_plumb DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions OPTIONAL)
install(FILES ${PROJECT_BINARY_DIR}/plumb.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d OPTIONAL)
