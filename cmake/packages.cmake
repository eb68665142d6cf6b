# What the core stands on. All of it comes from Debian: see tools/make/packages.txt, or type `make deps`.

find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
pkg_check_modules(UV REQUIRED IMPORTED_TARGET libuv)
pkg_check_modules(SODIUM REQUIRED IMPORTED_TARGET libsodium)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)
find_package(spdlog REQUIRED)
find_package(fmt REQUIRED)
find_program(FLATC flatc REQUIRED)

# The build tree's own Python, where tools/make/venv.sh has made one; else the python3 on PATH.
if(NOT Python3_EXECUTABLE AND EXISTS ${CMAKE_BINARY_DIR}/venv/bin/python3)
  set(Python3_EXECUTABLE ${CMAKE_BINARY_DIR}/venv/bin/python3)
endif()
set(Python3_FIND_UNVERSIONED_NAMES FIRST)
find_package(Python3 3.11 REQUIRED COMPONENTS Interpreter)
