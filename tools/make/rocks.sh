#!/bin/sh
# Writes LuaRocks' packages into build/packages: rockspecs, source rocks (*.src.rock) for all versions of Lua, and in
# rocks-5.1 (also for LuaJIT) and rocks-5.4 binary rocks, which need no compiler. Each of these folders is a server:
#   luarocks --lua-version=5.1 install --only-server=build/packages/rocks-5.1 polyverso
#
#   rocks.sh             writes the rocks
#   rocks.sh --stage     only lays out, in build/packages/stage/lua, each rock's source and an installation of the library
set -eu
cd "$(dirname "$0")/../.."
tools/make/tree.sh release shipped
. tools/make/sources.sh
version=$(library_version)
packages=$PWD/build/packages
stage=$packages/stage/lua
rm -rf "$stage"
mkdir -p "$stage"
date=@${SOURCE_DATE_EPOCH:-315532800}
rocks="polyverso polyverso-multiverso polyverso-torch polyverso-ipc"

quietly() { "$@" >"$stage/log" 2>&1 || { cat "$stage/log" >&2; exit 1; }; }

for rock in $rocks; do
  mkdir -p "$stage/$rock-$version"
  cp LICENSE "$stage/$rock-$version/"
done

source=$stage/polyverso-$version
cp -R lua/polyverso packaging/lua/build.sh packaging/lua/command.sh "$source/"
echo "$version" >"$source/version"
# One wrapper serves all versions of Lua.
cp build/swig/lua/5.1/capi.c "$source/capi.c"
mkdir "$source/swig"
cp swig/*.h "$source/swig/"
rm "$source/swig/"perl_*.h "$source/swig/"python_*.h
bundle_library "$source/bundled"

source=$stage/polyverso-multiverso-$version
mkdir "$source/src"
cp -R lua/compat/multiverso/multiverso "$source/src/"

source=$stage/polyverso-torch-$version
mkdir "$source/src"
cp -R lua/compat/torch/torch lua/compat/torch/nn lua/compat/torch/regress.lua lua/compat/torch/lapp.lua "$source/src/"
cp packaging/lua/torch-build.sh "$source/build.sh"

source=$stage/polyverso-ipc-$version
mkdir -p "$source/src" "$source/core/wire" "$source/core/base" "$source/include"
cp -R lua/compat/ipc/ipc lua/compat/ipc/distlearn lua/compat/ipc/polyverso lua/compat/ipc/libipc.lua "$source/src/"
cp -R lua/compat/ipc/native "$source/"
cp -R capi/include/polyverso "$source/include/"
cp core/wire/cpace.cpp core/wire/handshake.cpp core/wire/*.hpp "$source/core/wire/"
cp core/base/*.hpp "$source/core/base/"
cp packaging/lua/ipc-build.sh "$source/build.sh"

# Binary rocks carry the library of the build tree.
quietly cmake --install build --prefix "$stage/installed" --strip
[ "${1:-}" != --stage ] || exit 0

rm -rf "$packages"/rocks-* "$packages"/*.rock "$packages"/*.rockspec
for rock in $rocks; do
  folder=$rock-$version
  sed "s/@VERSION@/$version/g" "packaging/lua/$rock.rockspec.in" >"$stage/$folder/$folder-1.rockspec"
  # A source rock is a zip of a rockspec and its source; `luarocks pack` would download the latter. The same sources
  # give the same bytes; the archive's times begin in 1980.
  cp "$stage/$folder/$folder-1.rockspec" "$packages/"
  (
    cd "$packages"
    tar -C "$stage" --sort=name --owner=0 --group=0 --numeric-owner --mtime="$date" -c "$folder" | gzip -9n >"$folder.tar.gz"
    touch -d "$date" "$folder.tar.gz" "$folder-1.rockspec"
    rm -f "$folder-1.src.rock"
    TZ=UTC zip -qX "$folder-1.src.rock" "$folder-1.rockspec" "$folder.tar.gz"
    rm "$folder.tar.gz"
  )
  echo "build/packages/$folder-1.src.rock"
done

export POLYVERSO_BUNDLED=1 POLYVERSO_PREBUILT="$stage/installed"
for lua in 5.1 5.4; do
  mkdir "$packages/rocks-$lua"
  for rock in $rocks; do
    (
      cd "$stage/$rock-$version"
      # A binary rock loads in one version of Lua only, so LuaRocks has to refuse it in the others.
      sed "s/\"lua >= 5.1, < 5.5\"/\"lua >= $lua, < 5.$((${lua#5.} + 1))\"/" "$packages/$rock-$version-1.rockspec" >"$rock-$version-1.rockspec"
      grep -q "\"lua >= $lua, <" "$rock-$version-1.rockspec"
      quietly luarocks --lua-version="$lua" --tree="$stage/tree-$lua" make "$rock-$version-1.rockspec"
      cd "$packages/rocks-$lua"
      quietly luarocks --lua-version="$lua" --tree="$stage/tree-$lua" pack "$rock" "$version-1"
    )
    cp "$stage/$rock-$version/$rock-$version-1.rockspec" "$packages/rocks-$lua/"
  done
  quietly luarocks-admin --lua-version="$lua" make-manifest "$packages/rocks-$lua"
  ls "$packages/rocks-$lua"/*.rock
done
