#!/bin/sh
# What LuaRocks runs to build and to install the rock `polyverso-torch`.
#   build.sh build LUA
#   build.sh install LUADIR
set -eu
cd "$(dirname "$0")"

case $1 in
  build)
    [ -z "${POLYVERSO_REPLACE_TORCH:-}" ] || exit 0
    # Ours says so in its first lines.
    "$2" -e '
      for pattern in package.path:gmatch("[^;]+") do
        local name = not pattern:find("^%.") and pattern:gsub("%?", "torch")
        local file = name and io.open(name)
        if file then
          local is_ours = file:read("*a"):find("polyverso", 1, true)
          file:close()
          if not is_ours then
            io.stderr:write("polyverso-torch: there is a Torch, ", name, ", which this rock would hide or overwrite.\n",
              "polyverso-torch: set POLYVERSO_REPLACE_TORCH=1 to install it all the same\n")
            os.exit(1)
          end
        end
      end'
    ;;
  install)
    mkdir -p "$2"
    cp -R src/. "$2/"
    ;;
esac
