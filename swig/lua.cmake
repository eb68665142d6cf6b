# Lua: build/lua/5.1, also for LuaJIT, and build/lua/5.4: the same sources, with a module built for each.
find_package(PkgConfig REQUIRED)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME lua)

set(POLYVERSO_LUA_DIR lua CACHE STRING "Where the Lua modules are installed, below share under the prefix")
set(POLYVERSO_LUA_LIBRARY_DIR lib/${POLYVERSO_LUA_DIR} CACHE STRING "Where the compiled Lua modules are installed, below the prefix")

# What torch-ipc's module takes from the core, once for all versions of Lua.
if(POLYVERSO_COMPAT)
  set(handshake_sources ${PROJECT_SOURCE_DIR}/core/wire/cpace.cpp ${PROJECT_SOURCE_DIR}/core/wire/handshake.cpp)
  add_library(polyverso_ipc_handshake OBJECT ${handshake_sources})
  polyverso_unite(polyverso_ipc_handshake ${handshake_sources})
  target_link_libraries(polyverso_ipc_handshake PUBLIC PkgConfig::SODIUM fmt::fmt Threads::Threads)
  target_include_directories(polyverso_ipc_handshake PUBLIC ${PROJECT_SOURCE_DIR}/core ${PROJECT_SOURCE_DIR}/capi/include)
endif()

foreach(version 5.1 5.4)
  # Only the headers: the interpreter that loads the module provides the functions.
  pkg_check_modules(LUA${version} REQUIRED lua-${version})
  set(lua_tree ${CMAKE_BINARY_DIR}/lua/${version})
  polyverso_swig_module(polyverso_lua${version}
    SOURCE ${CMAKE_CURRENT_BINARY_DIR}/lua/${version}/capi.c
    SWIG_OPTIONS -lua
    DIRECTORY ${lua_tree}/polyverso
    OUTPUT_NAME capi SUFFIX .so
    INSTALL_DIRECTORY ${POLYVERSO_LUA_LIBRARY_DIR}/${version}/polyverso)
  target_include_directories(polyverso_lua${version} SYSTEM PRIVATE ${LUA${version}_INCLUDE_DIRS})

  polyverso_link_sources(${PROJECT_SOURCE_DIR}/lua/polyverso ${lua_tree}/polyverso)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/lua/polyverso DESTINATION share/${POLYVERSO_LUA_DIR}/${version})
  if(NOT POLYVERSO_COMPAT)
    # Of an earlier configuration.
    file(REMOVE_RECURSE ${lua_tree}/multiverso ${lua_tree}/ipc ${lua_tree}/distlearn ${lua_tree}/libipc.lua
      ${lua_tree}/polyverso/ipc_values.lua ${lua_tree}/polyverso/ipc.so)
    continue()
  endif()

  # Threads, queues and sockets for torch-ipc's scripts.
  file(GLOB native_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/lua/compat/ipc/native/*.cpp)
  add_library(polyverso_ipc_lua${version} MODULE ${native_sources})
  target_link_libraries(polyverso_ipc_lua${version} PRIVATE polyverso polyverso_ipc_handshake)
  target_include_directories(polyverso_ipc_lua${version} PRIVATE ${PROJECT_SOURCE_DIR}/lua/compat/ipc/native)
  target_include_directories(polyverso_ipc_lua${version} SYSTEM PRIVATE ${LUA${version}_INCLUDE_DIRS})
  # Its threads may outlive the interpreter that has loaded it.
  target_link_options(polyverso_ipc_lua${version} PRIVATE -Wl,-z,nodelete)
  file(RELATIVE_PATH to_libraries /${POLYVERSO_LUA_LIBRARY_DIR}/${version}/polyverso /${CMAKE_INSTALL_LIBDIR})
  set_target_properties(polyverso_ipc_lua${version} PROPERTIES
    PREFIX "" OUTPUT_NAME ipc SUFFIX .so LIBRARY_OUTPUT_DIRECTORY ${lua_tree}/polyverso
    BUILD_RPATH_USE_ORIGIN ON INSTALL_RPATH "$ORIGIN/${to_libraries}")
  install(TARGETS polyverso_ipc_lua${version} LIBRARY DESTINATION ${POLYVERSO_LUA_LIBRARY_DIR}/${version}/polyverso)

  foreach(package multiverso/multiverso ipc/ipc ipc/distlearn ipc/polyverso)
    get_filename_component(name ${package} NAME)
    polyverso_link_sources(${PROJECT_SOURCE_DIR}/lua/compat/${package} ${lua_tree}/${name})
    install(DIRECTORY ${PROJECT_SOURCE_DIR}/lua/compat/${package} DESTINATION share/${POLYVERSO_LUA_DIR}/${version})
  endforeach()
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/lua/compat/ipc/libipc.lua ${lua_tree}/libipc.lua SYMBOLIC)
  install(FILES ${PROJECT_SOURCE_DIR}/lua/compat/ipc/libipc.lua DESTINATION share/${POLYVERSO_LUA_DIR}/${version})
endforeach()

# torch/ and nn/, a replacement for systems without Torch: in a separate folder, which is on no search path by default; build/activate adds it. One
# for all versions of Lua.
if(POLYVERSO_COMPAT)
  polyverso_link_sources(${PROJECT_SOURCE_DIR}/lua/compat/torch/torch ${CMAKE_BINARY_DIR}/lua/compat/torch)
  polyverso_link_sources(${PROJECT_SOURCE_DIR}/lua/compat/torch/nn ${CMAKE_BINARY_DIR}/lua/compat/nn)
  foreach(file regress lapp)
    file(CREATE_LINK ${PROJECT_SOURCE_DIR}/lua/compat/torch/${file}.lua ${CMAKE_BINARY_DIR}/lua/compat/${file}.lua SYMBOLIC)
  endforeach()
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/lua/compat/torch/torch ${PROJECT_SOURCE_DIR}/lua/compat/torch/nn DESTINATION share/polyverso/lua-compat)
  install(FILES ${PROJECT_SOURCE_DIR}/lua/compat/torch/regress.lua ${PROJECT_SOURCE_DIR}/lua/compat/torch/lapp.lua
    DESTINATION share/polyverso/lua-compat)
else()
  file(REMOVE_RECURSE ${CMAKE_BINARY_DIR}/lua/compat)
endif()
