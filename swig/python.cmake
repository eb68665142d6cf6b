# Python: build/python/polyverso and what python/compat has, for the Python that cmake/packages.cmake has chosen.
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME python3)
find_package(Python3 3.11 REQUIRED COMPONENTS Interpreter Development.Module)

# This Python's module folder below a prefix: lib/python3.11/site-packages, on Debian .../dist-packages.
execute_process(
  COMMAND ${Python3_EXECUTABLE} -c [[
import sys, sysconfig
packages = 'dist-packages' if 'deb_system' in sysconfig.get_scheme_names() else 'site-packages'
print('lib/python%d.%d/%s' % (*sys.version_info[:2], packages))]]
  OUTPUT_VARIABLE python_directory OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
set(POLYVERSO_PYTHON_DIR ${python_directory} CACHE STRING "Where the Python packages are installed, below the prefix")

# The wheel's module uses only CPython's stable ABI, so that it serves every version from 3.11 on. In a build tree, the Python is known.
set(python_options -fastproxy)
set(python_suffix .${Python3_SOABI}.so)
if(POLYVERSO_WHEEL)
  set(python_options -DPOLYVERSO_ABI3)
  set(python_suffix .abi3.so)
endif()

set(python_tree ${CMAKE_BINARY_DIR}/python)
polyverso_swig_module(polyverso_python
  SOURCE ${CMAKE_CURRENT_BINARY_DIR}/python/capi.c
  SWIG_OPTIONS -python ${python_options} -outdir ${python_tree}/polyverso
  BYPRODUCTS ${python_tree}/polyverso/capi.py
  DIRECTORY ${python_tree}/polyverso
  OUTPUT_NAME _capi SUFFIX ${python_suffix}
  INSTALL_DIRECTORY ${POLYVERSO_PYTHON_DIR}/polyverso)
target_link_libraries(polyverso_python PRIVATE Python3::Module)
# The limited API lacks functions: C would take them for functions that return int.
target_compile_options(polyverso_python PRIVATE -Werror=implicit-function-declaration)
if(POLYVERSO_WHEEL)
  target_compile_definitions(polyverso_python PRIVATE Py_LIMITED_API=0x030B0000)
endif()

# Links a package into the build tree, and installs it into a folder.
function(polyverso_python_package from to installed)
  polyverso_link_sources(${PROJECT_SOURCE_DIR}/python/${from} ${to})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/python/${from} DESTINATION ${installed} PATTERN __pycache__ EXCLUDE)
endfunction()

polyverso_python_package(polyverso ${python_tree}/polyverso ${POLYVERSO_PYTHON_DIR})
if(POLYVERSO_COMPAT)
  polyverso_python_package(compat/multiverso/multiverso ${python_tree}/multiverso ${POLYVERSO_PYTHON_DIR})
  # A replacement for dpwa where it is not installed: cmake/activate.in appends it to the path.
  polyverso_python_package(compat/dpwa/dpwa ${python_tree}/compat/dpwa share/polyverso/python-compat)
else()
  file(REMOVE_RECURSE ${python_tree}/multiverso ${python_tree}/compat)  # of an earlier configuration
endif()
install(FILES ${python_tree}/polyverso/capi.py DESTINATION ${POLYVERSO_PYTHON_DIR}/polyverso)

# Where processes write no bytecode (PYTHONDONTWRITEBYTECODE), each would compile the packages again; the tests start thousands.
if(NOT POLYVERSO_WHEEL)
  file(GLOB_RECURSE python_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/python/polyverso/*.py ${PROJECT_SOURCE_DIR}/python/compat/*/*/*.py)
  set(stamp ${CMAKE_CURRENT_BINARY_DIR}/python/bytecode.stamp)
  add_custom_command(OUTPUT ${stamp}
    COMMAND ${Python3_EXECUTABLE} -m compileall -q ${python_tree}
    COMMAND ${CMAKE_COMMAND} -E touch ${stamp}
    DEPENDS polyverso_python ${python_sources} VERBATIM)
  add_custom_target(polyverso_python_bytecode ALL DEPENDS ${stamp})
endif()
