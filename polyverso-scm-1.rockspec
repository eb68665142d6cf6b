-- For a checkout:   luarocks --lua-version=5.4 make
rockspec_format = "3.0"
package = "polyverso"
version = "scm-1"
source = { url = "git+file://." } -- not used: `luarocks make` builds what is in this folder
description = {
  summary = "Model parameters shared between processes, in any language",
  license = "Apache-2.0",
}
supported_platforms = { "linux" }
dependencies = { "lua >= 5.1, < 5.5" }
build = {
  type = "command",
  build_command = 'sh packaging/lua/checkout.sh build "$(CC)" "$(CFLAGS)" "$(LUA_INCDIR)"',
  install_command = 'sh packaging/lua/checkout.sh install "$(LUADIR)" "$(LIBDIR)" "$(BINDIR)"',
}
