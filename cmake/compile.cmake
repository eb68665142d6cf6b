# Compiler settings for all targets.

set(CMAKE_C_STANDARD 11)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# Programs and libraries go where build/activate and the tests expect them.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
# Installed programs find the library relative to themselves, also after the tree is moved; and in their own folder, where
# the packages of languages put both.
file(RELATIVE_PATH bin_to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
set(CMAKE_INSTALL_RPATH "$ORIGIN/${bin_to_lib};$ORIGIN")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()
# Line numbers are enough to read a stack; more debug information slows the build down.
foreach(language C CXX)
  set(CMAKE_${language}_FLAGS_RELWITHDEBINFO "-O2 -g1 -DNDEBUG")
endforeach()

add_compile_options(-Wall -Wextra)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)  # for ccache
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=1000000>)  # kB: collecting garbage takes a tenth of the time
endif()
# Equal inputs give equal bits on every machine, so a multiply and an add must not be fused into one rounding.
add_compile_options(-ffp-contract=off)
# Kernels are compiled once for each instruction set: AVX-512, AVX2, and SSE2 for processors from before 2013. SSE4 and SSSE3 would take
# two fifths of the time to compile for little on those.
add_compile_definitions($<$<COMPILE_LANGUAGE:CXX>:HWY_DISABLED_TARGETS=\(HWY_SSE4|HWY_SSSE3\)>)

# Packages have the same bytes, and the same build ids, in whatever folder they were built. Other trees keep the paths for debuggers.
if(POLYVERSO_DEBIAN OR POLYVERSO_WHEEL)
  add_compile_options(-ffile-prefix-map=${CMAKE_SOURCE_DIR}=.)
endif()

if(POLYVERSO_SANITIZE)
  # Instrumented code causes false warnings of the compiler's flow analysis; the release tree's warnings count.
  set(CMAKE_COMPILE_WARNING_AS_ERROR OFF)
  add_compile_options(-fsanitize=${POLYVERSO_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${POLYVERSO_SANITIZE})
  add_compile_definitions(XXH_NO_INLINE_HINTS=1)  # -Og can't inline all that it wants inlined
  # A shell with build/activate has the release libraries on LD_LIBRARY_PATH. DT_RPATH comes before that, DT_RUNPATH
  # does not, and the tests would run on the wrong library.
  add_link_options(-Wl,--disable-new-dtags)
  if(POLYVERSO_SANITIZE MATCHES undefined)
    add_compile_options(-fno-sanitize-recover=undefined)
    # What AddressSanitizer finds, too, and what takes long to compile for what it finds. The fuzz targets, by clang, check more.
    add_compile_options(-fno-sanitize=null,object-size,vptr,pointer-overflow)
    add_compile_options("$<$<CXX_COMPILER_ID:GNU>:-fno-sanitize=alignment,bool,enum,return,unreachable,builtin>")
    # A third of the time to compile is saved when each check is a call, and undefined behaviour an illegal instruction, which
    # AddressSanitizer reports with its stack. `-fno-sanitize-undefined-trap-on-error` in CMAKE_CXX_FLAGS brings UBSan's own words.
    add_compile_options($<$<CXX_COMPILER_ID:GNU>:--param=asan-instrumentation-with-call-threshold=0>
                        $<$<CXX_COMPILER_ID:GNU>:-fsanitize-undefined-trap-on-error>)
  endif()
endif()
if(POLYVERSO_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
    message(FATAL_ERROR "POLYVERSO_FUZZ needs clang: use the preset `fuzz`")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

find_program(CCACHE ccache)
mark_as_advanced(CCACHE)
foreach(language C CXX)
  # Not for packages: a precompiled header from the cache may name the folder of another build, and so would their debug information.
  if(CCACHE AND NOT POLYVERSO_DEBIAN AND NOT POLYVERSO_WHEEL AND NOT CMAKE_${language}_COMPILER_LAUNCHER)
    set(CMAKE_${language}_COMPILER_LAUNCHER ${CMAKE_SOURCE_DIR}/cmake/ccache.sh)
  endif()
endforeach()
