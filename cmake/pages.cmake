# Pages for man: cmake -D BIN=folder of the programs -D OUT=folder -D GZIP=gzip -P pages.cmake
# writes one for each program and for each command of outrider, as these say them
# (base/text/option_pages.h).
cmake_minimum_required(VERSION 3.25)

# page(PURPOSE WORD...): the page of the program or command that the words call.
function(page purpose)
  string(JOIN "-" name ${ARGN})
  list(POP_FRONT ARGN program)
  set(form man)
  if(purpose)
    set(form "man:${purpose}")
  endif()
  execute_process(COMMAND ${BIN}/${program} ${ARGN} "--options-as=${form}"
    OUTPUT_FILE ${OUT}/${name}.1 COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND ${GZIP} -9nf ${OUT}/${name}.1 COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# Pages of all commands below the one of these words.
function(pages_below)
  execute_process(COMMAND ${BIN}/${ARGN} --options-as=table OUTPUT_VARIABLE table
    COMMAND_ERROR_IS_FATAL ANY)
  string(ASCII 1 mark) # for semicolons, at which CMake parts lists
  string(REPLACE ";" "${mark}" table "${table}")
  string(REGEX MATCHALL "(^|\n)command\t[^\n]*" lines "${table}")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^\n?command\t([a-z]+)\t.*" "\\1" command "${line}")
    string(REGEX REPLACE "^\n?command\t[a-z]+\t(.*)" "\\1" purpose "${line}")
    string(REPLACE "${mark}" ";" purpose "${purpose}")
    if(NOT command MATCHES "^(help|version)$")
      page("${purpose}" ${ARGN} ${command})
      pages_below(${ARGN} ${command})
    endif()
  endforeach()
endfunction()

file(REMOVE_RECURSE ${OUT})
file(MAKE_DIRECTORY ${OUT})
foreach(program outrider outrider-coordinator outrider-worker outrider-group)
  page("" ${program})
endforeach()
pages_below(outrider)
