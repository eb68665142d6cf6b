# Tests that find bugs: folders of the core with bugs in them, for programs that are expected to fail. All bugs of a folder are compiled at once,
# and a run chooses one by its name.

# polyverso_put_bug(name folder source right wrong): in a source of core/<folder>, `wrong` takes the place of `right`. In it, BUG stands for
# whether this bug is chosen; without it, the text must be as good as the right one.
function(polyverso_put_bug name folder source right wrong)
  set(path ${CMAKE_SOURCE_DIR}/core/${folder}/${source})
  get_property(text GLOBAL PROPERTY "bugs in ${path}")
  if(NOT text)
    file(READ ${path} text)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
  endif()
  string(FIND "${text}" "${right}" found)
  if(found EQUAL -1)
    message(FATAL_ERROR "${name}: ${source} does not have this any more: ${right}")
  endif()
  string(REPLACE "BUG" "mv::has_bug(\"${name}\")" wrong "${wrong}")
  string(REPLACE "${right}" "${wrong}" text "${text}")
  set_property(GLOBAL PROPERTY "bugs in ${path}" "${text}")
endfunction()

# polyverso_add_bugs(target source...): adds these sources, folder by folder as one unit, as they are in the library: of two definitions the linker
# takes the first. The program defines has_bug().
function(polyverso_add_bugs target)
  foreach(source ${ARGN})
    get_filename_component(folder ${source} DIRECTORY)
    file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR} ${folder})
    string(MAKE_C_IDENTIFIER ${folder} unit)
    list(APPEND units ${unit})
    get_property(text GLOBAL PROPERTY "bugs in ${source}")
    if(text)
      string(APPEND text_of_${unit} "#line 1 \"${source}\"\n${text}\n")
    else()
      string(APPEND text_of_${unit} "#include \"${source}\"\n")
    endif()
  endforeach()
  list(REMOVE_DUPLICATES units)
  foreach(unit ${units})
    set(path ${CMAKE_CURRENT_BINARY_DIR}/bugs/${unit}.cpp)
    file(GENERATE OUTPUT ${path} CONTENT "namespace mv {\nbool has_bug(const char* name);\n}\n${text_of_${unit}}")
    target_sources(${target} PRIVATE ${path})
  endforeach()
endfunction()
