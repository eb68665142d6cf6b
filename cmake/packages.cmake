# The core's dependencies. All of them come from Debian: see tools/make/packages.txt, or type `make deps`.

find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
pkg_check_modules(UV REQUIRED IMPORTED_TARGET libuv)
pkg_check_modules(SODIUM REQUIRED IMPORTED_TARGET libsodium)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)
pkg_check_modules(HTTPLIB REQUIRED IMPORTED_TARGET cpp-httplib)
if(POLYVERSO_TLS)
  pkg_check_modules(OPENSSL REQUIRED IMPORTED_TARGET "openssl>=3.0")
endif()
if(POLYVERSO_UCX)
  pkg_check_modules(UCX REQUIRED IMPORTED_TARGET ucx)
endif()
pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-0.1)
pkg_check_modules(XXHASH REQUIRED libxxhash)  # only its header is used
find_package(nlohmann_json REQUIRED)
find_package(tsl-robin-map REQUIRED)  # headers only
find_package(spdlog REQUIRED)
find_package(fmt REQUIRED)
find_program(FLATC flatc REQUIRED)

# The Python to build for and to test with: the build tree's own, if tools/make/venv.sh has made one; otherwise the first one that has
# numpy, of the python3 on PATH and the system's. -DPython3_EXECUTABLE=... overrides this. The library alone needs none.
if(POLYVERSO_BINDINGS OR POLYVERSO_TESTS OR POLYVERSO_BENCH)
  if(NOT Python3_EXECUTABLE)
    find_program(python_on_path python3 NO_CACHE)
    foreach(candidate ${CMAKE_BINARY_DIR}/venv/bin/python3 ${python_on_path} /usr/bin/python3)
      execute_process(COMMAND ${candidate} -c "import numpy" RESULT_VARIABLE without_numpy OUTPUT_QUIET ERROR_QUIET)
      if(without_numpy EQUAL 0)
        set(Python3_EXECUTABLE ${candidate} CACHE FILEPATH "The Python that the module is built for")
        break()
      endif()
    endforeach()
  endif()
  find_package(Python3 3.11 REQUIRED COMPONENTS Interpreter)
endif()
