# The files of `cmake --install` besides the command (tools/) and the languages' modules (swig/): the header, the library, and the two ways
# to find them, pkg-config and find_package(polyverso CONFIG). The installed tree is relocatable. Each file belongs to one of the components
# lib, ucx, mpi_openmpi, mpi_mpich, dev, tools, env, python3, perl and lua (cmake --install build --component lib); cmake/debian.cmake makes a package of each.
include(CMakePackageConfigHelpers)

set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME dev)
install(DIRECTORY capi/include/polyverso DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(TARGETS polyverso_http LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT lib)  # the library looks for it in its own folder
if(POLYVERSO_TLS)
  install(TARGETS polyverso_tls LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT lib)
endif()
if(POLYVERSO_UCX)
  install(TARGETS polyverso_ucx LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ucx)
endif()
foreach(library ${POLYVERSO_MPI_LIBRARIES})
  install(TARGETS polyverso_mpi_${library} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT mpi_${library})
endforeach()
install(TARGETS polyverso EXPORT polyverso-targets LIBRARY COMPONENT lib NAMELINK_COMPONENT dev INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/polyverso)
install(EXPORT polyverso-targets NAMESPACE polyverso:: DESTINATION ${package_folder})
configure_package_config_file(cmake/polyverso-config.cmake.in ${CMAKE_BINARY_DIR}/cmake/polyverso-config.cmake
  INSTALL_DESTINATION ${package_folder})
# Before 1.0 a new minor version may break the ABI, as the soname shows.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/cmake/polyverso-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/cmake/polyverso-config.cmake ${CMAKE_BINARY_DIR}/cmake/polyverso-config-version.cmake
  DESTINATION ${package_folder})

configure_file(cmake/polyverso-env.in ${CMAKE_BINARY_DIR}/cmake/polyverso-env @ONLY)
install(PROGRAMS ${CMAKE_BINARY_DIR}/cmake/polyverso-env DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT env)

file(RELATIVE_PATH pc_to_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(cmake/polyverso.pc.in ${CMAKE_BINARY_DIR}/cmake/polyverso.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/cmake/polyverso.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
