# Most of a file's compile time goes into headers that it shares with its neighbours, so the sources of a folder are compiled as one unit.
# As a result, the anonymous namespaces of a folder are one. The preset `debug` compiles file by file, and so detects missing includes.
option(POLYVERSO_UNITY "Compile the sources of each folder together, and precompile headers" ON)

# polyverso_unite(target source...): Highway's files stay separate, because each is compiled many times over already; so do files with their
# own options.
function(polyverso_unite target)
  if(NOT POLYVERSO_UNITY)
    return()
  endif()
  foreach(source ${ARGN})
    file(STRINGS ${source} many_targets REGEX "hwy/foreach_target" LIMIT_COUNT 1)
    if(NOT many_targets)
      get_filename_component(folder ${source} DIRECTORY)
      file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR} ${folder})
      string(MAKE_C_IDENTIFIER ${folder} group)
      set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group})
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()

# polyverso_precompile(target [REUSE_FROM other]): for C++ only. Both must be compiled for the same position independence.
function(polyverso_precompile target)
  if(NOT POLYVERSO_UNITY)
    return()
  endif()
  if(ARGC GREATER 1)
    target_precompile_headers(${target} ${ARGN})
  else()
    target_precompile_headers(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${CMAKE_SOURCE_DIR}/cmake/precompiled.hpp>)
  endif()
endfunction()
