# Lua: build/lua/5.1, which serves LuaJIT too, and build/lua/5.4: the same sources, and the module built for each.
find_package(PkgConfig REQUIRED)

set(POLYVERSO_LUA_DIR lua CACHE STRING "Where the Lua modules are installed, below share and lib under the prefix")

foreach(version 5.1 5.4)
  # Only the headers: the interpreter that loads the module brings the functions.
  pkg_check_modules(LUA${version} REQUIRED lua-${version})
  set(lua_tree ${CMAKE_BINARY_DIR}/lua/${version})
  polyverso_swig_module(polyverso_lua${version}
    SOURCE ${CMAKE_CURRENT_BINARY_DIR}/lua/${version}/capi.c
    SWIG_OPTIONS -lua
    DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/lua.i
    DIRECTORY ${lua_tree}/polyverso
    OUTPUT_NAME capi SUFFIX .so
    INSTALL_DIRECTORY lib/${POLYVERSO_LUA_DIR}/${version}/polyverso)
  target_include_directories(polyverso_lua${version} SYSTEM PRIVATE ${LUA${version}_INCLUDE_DIRS})

  foreach(package polyverso multiverso)
    polyverso_link_sources(${PROJECT_SOURCE_DIR}/lua/${package} ${lua_tree}/${package})
    install(DIRECTORY ${PROJECT_SOURCE_DIR}/lua/${package} DESTINATION share/${POLYVERSO_LUA_DIR}/${version})
  endforeach()
endforeach()

# torch/, for where there is no Torch: in a folder of its own, which is on nobody's path until somebody puts it there,
# as build/activate does. One for all versions of Lua.
polyverso_link_sources(${PROJECT_SOURCE_DIR}/lua/compat ${CMAKE_BINARY_DIR}/lua/compat)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/lua/compat/torch DESTINATION share/polyverso/lua-compat)
