# Debian packages of the installed files, one for each component of cmake/install.cmake: `make debs`, by CPack. tools/make/debs.sh configures
# a tree for them with -DPOLYVERSO_DEBIAN=ON.
#
# Nothing here depends on the clock or on the folder: SOURCE_DATE_EPOCH dates everything.
set(POLYVERSO_DEBIAN_REVISION 1 CACHE STRING "The part of the Debian packages' version after the hyphen")
if(NOT DEFINED ENV{SOURCE_DATE_EPOCH})
  message(FATAL_ERROR "POLYVERSO_DEBIAN needs SOURCE_DATE_EPOCH; type: make debs")
endif()
execute_process(COMMAND date -u -R -d @$ENV{SOURCE_DATE_EPOCH}
  OUTPUT_VARIABLE debian_date OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
set(debian_version ${PROJECT_VERSION}-${POLYVERSO_DEBIAN_REVISION})
set(debian_maintainer "The Polyverso developers <maintainers@polyverso.invalid>")

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "${debian_maintainer}")
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/packages)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_THREADS 1)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_COMPONENTS_ALL lib dev tools python3 perl lua)
if(POLYVERSO_UCX)
  list(APPEND CPACK_COMPONENTS_ALL ucx)
endif()
foreach(mpi ${POLYVERSO_MPI_LIBRARIES})
  list(APPEND CPACK_COMPONENTS_ALL mpi_${mpi})
endforeach()
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE ${POLYVERSO_DEBIAN_REVISION})
set(CPACK_DEBIAN_PACKAGE_SOURCE polyverso)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# libpolyverso.so.0 of this tree belongs to no installed package yet. The packages that need it name it below, in the same version.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_BINARY_DIR}/lib)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # each package has its own

# debian_package(COMPONENT NAME SECTION SUMMARY DESCRIPTION [depends...]): CPack's variables, and the files that Debian's policy asks of each
# package: the licence and the two change logs.
function(debian_package component name section summary description)
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section} PARENT_SCOPE)
  set(CPACK_COMPONENT_${upper}_DESCRIPTION "${summary}\n${description}" PARENT_SCOPE)
  list(JOIN ARGN ", " depends)
  set(CPACK_DEBIAN_${upper}_PACKAGE_DEPENDS "${depends}" PARENT_SCOPE)

  set(folder ${CMAKE_BINARY_DIR}/debian/${name})
  file(MAKE_DIRECTORY ${folder})
  configure_file(packaging/debian/changelog.in ${folder}/changelog.Debian @ONLY)
  configure_file(packaging/debian/copyright ${folder}/copyright COPYONLY)
  configure_file(CHANGELOG.md ${folder}/changelog COPYONLY)
  execute_process(COMMAND gzip -9nf ${folder}/changelog.Debian ${folder}/changelog COMMAND_ERROR_IS_FATAL ANY)
  install(FILES ${folder}/changelog.Debian.gz ${folder}/changelog.gz ${folder}/copyright
    DESTINATION share/doc/${name} COMPONENT ${component})
  set(scripts)
  foreach(script postinst prerm triggers)
    if(EXISTS ${CMAKE_SOURCE_DIR}/packaging/debian/${name}.${script})
      configure_file(packaging/debian/${name}.${script} ${folder}/${script} COPYONLY)
      list(APPEND scripts ${folder}/${script})
    endif()
  endforeach()
  set(CPACK_DEBIAN_${upper}_PACKAGE_CONTROL_EXTRA "${scripts}" PARENT_SCOPE)
  if(EXISTS ${CMAKE_SOURCE_DIR}/packaging/debian/${name}.lintian-overrides)
    install(FILES packaging/debian/${name}.lintian-overrides DESTINATION share/lintian/overrides RENAME ${name} COMPONENT ${component})
  endif()
endfunction()

set(about "Processes in Perl, Python, Lua, C and other languages share parameter
tables and key-value stores, reduce arrays together, or average their models
with their peers', on one machine or several.

This package has")
set(library "libpolyverso0 (= ${debian_version})")
debian_package(lib libpolyverso0 libs "model parameters shared between processes (library)"
  "${about} the library, and libmultiverso.so with the C functions
of Multiverso.")
if(POLYVERSO_UCX)
  debian_package(ucx libpolyverso-ucx libs "model parameters shared between processes (UCX)"
    "${about} the plug-in by which messages go over InfiniBand,
RoCE and other networks of UCX (transport=ucx)." ${library})
endif()
foreach(mpi ${POLYVERSO_MPI_LIBRARIES})
  if(mpi STREQUAL openmpi)
    set(mpi_name "Open MPI")
  else()
    set(mpi_name "MPICH")
  endif()
  debian_package(mpi_${mpi} libpolyverso-mpi-${mpi} libs "model parameters shared between processes (${mpi_name})"
    "${about} the plug-in by which processes that ${mpi_name} has
started use nothing but ${mpi_name} (transport=mpi)." ${library})
endforeach()
debian_package(dev libpolyverso-dev libdevel "model parameters shared between processes (headers)"
  "${about} the headers for C and C++, and the files of pkg-config
and CMake." ${library})
debian_package(tools polyverso-tools utils "model parameters shared between processes (command)"
  "${about} the polyverso command, which starts, shows and examines
the processes of a cluster." ${library})
math(EXPR next_minor "${Python3_VERSION_MINOR} + 1")
debian_package(python3 python3-polyverso python "model parameters shared between processes (Python)"
  "${about} the modules polyverso and multiverso for Python 3." ${library}
  "python3 (>= ${Python3_VERSION_MAJOR}.${Python3_VERSION_MINOR})" "python3 (<< ${Python3_VERSION_MAJOR}.${next_minor})" "python3-numpy")
execute_process(COMMAND ${PERL_EXECUTABLE} -MConfig -e [[print "perlapi-$Config{version}"]] OUTPUT_VARIABLE perl_abi COMMAND_ERROR_IS_FATAL ANY)
debian_package(perl libpolyverso-perl perl "model parameters shared between processes (Perl)"
  "${about} the modules Polyverso and AI::MXNet for Perl." ${library} "perl" "${perl_abi}" "libmouse-perl" "libfunction-parameters-perl")
debian_package(lua lua-polyverso interpreters "model parameters shared between processes (Lua)"
  "${about} the modules for Lua 5.1, LuaJIT and Lua 5.4." ${library} "lua5.1 | luajit | lua5.4")
set(CPACK_DEBIAN_PERL_PACKAGE_RECOMMENDS "pdl")
set(CPACK_DEBIAN_TOOLS_PACKAGE_RECOMMENDS "python3-polyverso, libpolyverso-perl, lua-polyverso")

include(CPack)
