# The files of the Python wheel besides the command (tools/) and the module (swig/). pyproject.toml sets the folders: all of them are below
# the package polyverso/, where pip puts them on any system.
install(DIRECTORY capi/include/polyverso DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(TARGETS polyverso_http LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(POLYVERSO_TLS)
  install(TARGETS polyverso_tls LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
# A wheel has no links: the library is one file, under the name by which programs load it.
set_target_properties(polyverso PROPERTIES VERSION ${PROJECT_VERSION_MAJOR})
install(TARGETS polyverso LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} NAMELINK_SKIP)
