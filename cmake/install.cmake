# The files of `cmake --install` besides the command (tools/) and the languages' modules (swig/): the header, the library, and the two ways
# to find them, pkg-config and find_package(polyverso CONFIG). The installed tree is relocatable.
include(CMakePackageConfigHelpers)

install(DIRECTORY capi/include/polyverso DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(TARGETS polyverso_http LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})  # the library looks for it in its own folder
install(TARGETS polyverso EXPORT polyverso-targets LIBRARY INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/polyverso)
install(EXPORT polyverso-targets NAMESPACE polyverso:: DESTINATION ${package_folder})
configure_package_config_file(cmake/polyverso-config.cmake.in ${CMAKE_BINARY_DIR}/cmake/polyverso-config.cmake
  INSTALL_DESTINATION ${package_folder})
# Before 1.0 a new minor version may break the ABI, as the soname shows.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/cmake/polyverso-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/cmake/polyverso-config.cmake ${CMAKE_BINARY_DIR}/cmake/polyverso-config-version.cmake
  DESTINATION ${package_folder})

configure_file(cmake/polyverso-env.in ${CMAKE_BINARY_DIR}/cmake/polyverso-env @ONLY)
install(PROGRAMS ${CMAKE_BINARY_DIR}/cmake/polyverso-env DESTINATION ${CMAKE_INSTALL_BINDIR})

file(RELATIVE_PATH pc_to_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(cmake/polyverso.pc.in ${CMAKE_BINARY_DIR}/cmake/polyverso.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/cmake/polyverso.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
