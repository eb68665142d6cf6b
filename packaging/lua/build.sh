#!/bin/sh
# What LuaRocks runs to build and to install the rock `polyverso`.
#   build.sh build CC CFLAGS LUA_INCDIR
#   build.sh install LUADIR LIBDIR BINDIR
#
# The module is linked with the libpolyverso that pkg-config finds. Otherwise, or with POLYVERSO_BUNDLED=1 in the
# environment, the library is built from the source in bundled/, and installed with the `polyverso` command.
set -eu
cd "$(dirname "$0")"

case $1 in
  build)
    compiler=$2 flags=$3 lua=$4
    version=$(cat version)
    rm -rf built
    mkdir built
    installed=
    if [ -z "${POLYVERSO_BUNDLED:-}" ]; then installed=$(pkg-config --modversion polyverso 2>/dev/null) || true; fi
    # Before 1.0, another minor version may have another ABI.
    if [ -n "$installed" ] && [ "${installed%.*}" = "${version%.*}" ]; then
      folder=$(pkg-config --variable=libdir polyverso | sed 's/\\\(.\)/\1/g') # pkg-config escapes for a shell
      folder=$(cd "$folder" && pwd)
      eval "set -- $(pkg-config --cflags --libs polyverso)"
      set -- "$@" "-Wl,-rpath,$folder"
    else
      sh bundled/build.sh bundled bundled/build built
      # shellcheck disable=SC2016 # $ORIGIN is for the dynamic linker
      set -- -Ibundled/capi/include built/libpolyverso.so.0 '-Wl,-rpath,$ORIGIN'
    fi
    # Equal inputs give equal bits on every machine, so a multiply and an add must not be fused into one rounding.
    # shellcheck disable=SC2086 # several flags
    "$compiler" $flags -fPIC -shared -ffp-contract=off "-I$lua" -Iswig -o built/capi.so capi.c "$@"
    ;;
  install)
    scripts=$2 modules=$3 programs=$4
    mkdir -p "$scripts" "$modules" "$programs"
    cp -R polyverso "$scripts/"
    cp -R built "$modules/polyverso"
    if [ -e built/polyverso ]; then cp command.sh "$programs/polyverso"; fi
    ;;
esac
