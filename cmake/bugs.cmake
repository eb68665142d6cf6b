# Tests that find bugs: a source of the core with a bug in it, for programs that are expected to fail.

# polyverso_put_bug(output source right wrong [neighbour...]): writes a copy of a source, relative to core/, with one text in the place of
# another one, and then includes the neighbours, other sources of its folder: they are one unit in the library, and of two definitions the
# linker takes the first.
function(polyverso_put_bug output source right wrong)
  set(core ${CMAKE_SOURCE_DIR}/core)
  file(READ ${core}/${source} text)
  string(FIND "${text}" "${right}" found)
  if(found EQUAL -1)
    message(FATAL_ERROR "${output}: ${source} does not have this any more: ${right}")
  endif()
  string(REPLACE "${right}" "${wrong}" text "${text}")
  list(REMOVE_ITEM ARGN ${core}/${source})
  foreach(neighbour ${ARGN})
    string(APPEND text "\n#include \"${neighbour}\"")
  endforeach()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${core}/${source})
  file(GENERATE OUTPUT ${output} CONTENT "${text}\n")
endfunction()
