#!/bin/sh
# What LuaRocks runs to build and to install the rock `polyverso-ipc`.
#   build.sh build LUA_INCDIR
#   build.sh install LUADIR LIBDIR
set -eu
cd "$(dirname "$0")"

case $1 in
  build)
    rm -rf built
    mkdir -p built/stub
    # The rock `polyverso` has the library, next to this module or where pkg-config finds it. Here its name suffices.
    # shellcheck disable=SC2016 # $ORIGIN is for the dynamic linker
    rpath='-Wl,-rpath,$ORIGIN'
    if folder=$(pkg-config --variable=libdir polyverso 2>/dev/null); then
      folder=$(printf %s "$folder" | sed 's/\\\(.\)/\1/g') # pkg-config escapes for a shell
      rpath="$rpath:$(cd "$folder" && pwd)"
    fi
    "${CC:-cc}" -shared -Wl,-soname,libpolyverso.so.0 -o built/stub/libpolyverso.so -x c /dev/null
    # shellcheck disable=SC2046 # several flags
    "${CXX:-c++}" -std=c++20 -O2 -DNDEBUG -fPIC -shared -fvisibility=hidden -fvisibility-inlines-hidden -ffp-contract=off -pthread \
      -Inative -Icore -Iinclude "-I$2" $(pkg-config --cflags libsodium fmt) -o built/ipc.so native/*.cpp core/wire/*.cpp \
      -Wl,-z,nodelete -Wl,--no-as-needed -Lbuilt/stub -lpolyverso -Wl,--as-needed "$rpath" $(pkg-config --libs libsodium fmt)
    ;;
  install)
    mkdir -p "$2" "$3/polyverso"
    cp -R src/. "$2/"
    cp built/ipc.so "$3/polyverso/"
    ;;
esac
