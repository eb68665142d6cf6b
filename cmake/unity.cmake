# Most of a file's compile time goes into headers that it shares with its neighbours, so the sources of a folder are compiled as one unit.
# As a result, the anonymous namespaces of a folder are one. The preset `debug` compiles file by file, and so detects missing includes.
option(POLYVERSO_UNITY "Compile the sources of each folder together, and precompile headers" ON)

# polyverso_unite(target source...): a folder's plain sources are one unit, and its Highway kernels another: each kernel is compiled for every
# instruction set, and most of that is Highway's headers. A source with options of its own stays alone.
function(polyverso_unite target)
  if(NOT POLYVERSO_UNITY)
    return()
  endif()
  set(kernel_groups)
  foreach(source ${ARGN})
    get_source_file_property(own_options ${source} COMPILE_OPTIONS)
    file(STRINGS ${source} many_targets REGEX "hwy/foreach_target" LIMIT_COUNT 1)
    get_filename_component(folder ${source} DIRECTORY)
    file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR} ${folder})
    string(MAKE_C_IDENTIFIER ${folder} group)
    if(own_options)
      set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    elseif(many_targets)
      list(APPEND kernel_groups ${group})
      list(APPEND kernels_${group} ${source})
    else()
      set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES kernel_groups)
  foreach(group ${kernel_groups})
    polyverso_unite_kernels(${target} ${CMAKE_CURRENT_BINARY_DIR}/kernels/${group}.cpp ${kernels_${group}})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()

# Writes a unit that includes the kernels. Highway includes the unit again for each instruction set; each kernel names itself for that, so the
# unit has the last word.
function(polyverso_unite_kernels target unit)
  set(itself "#undef HWY_TARGET_INCLUDE\n#define HWY_TARGET_INCLUDE \"${unit}\"\n")
  list(TRANSFORM ARGN REPLACE "(.+)" "#include \"\\1\"\n" OUTPUT_VARIABLE includes)
  list(JOIN includes "" includes)
  file(CONFIGURE OUTPUT ${unit} CONTENT "// Generated: see cmake/unity.cmake.\n${itself}#include <hwy/foreach_target.h>\n${includes}${itself}" @ONLY)
  set_source_files_properties(${ARGN} PROPERTIES HEADER_FILE_ONLY ON)
  # The compiler takes what is included for headers, which should have no types in anonymous namespaces.
  set_source_files_properties(${unit} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON COMPILE_OPTIONS -Wno-subobject-linkage)
  target_sources(${target} PRIVATE ${unit})
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
