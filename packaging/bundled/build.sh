#!/bin/sh
# Builds the library and the `polyverso` command from the source that a distribution of Perl or a rock of Lua carries,
# and copies them into one folder. The library finds its modules, polyverso-http and polyverso-tls, and the command its library, in the
# folder that they lie in, so the folder may be moved.
#   build.sh SOURCE BUILD FOLDER
# POLYVERSO_PREBUILT in the environment is the prefix of an installation from which they are copied instead.
set -eu
source=$1 build=$2 folder=$3
copy() {
  mkdir -p "$folder"
  find "$1" \( -name libpolyverso.so.0 -o -name libpolyverso-http.so -o -name libpolyverso-tls.so -o -path '*/bin/polyverso' \) -exec cp -Lf {} "$folder/" \;
}
if [ -n "${POLYVERSO_PREBUILT:-}" ]; then
  copy "$POLYVERSO_PREBUILT"
  exit 0
fi

command -v cmake >/dev/null || {
  echo "polyverso: the library is not installed, and building it needs CMake 3.25, a C++20 compiler and the packages that" >&2
  echo "polyverso: the group \"build\" of $source/packages.txt names. Or install libpolyverso, so that pkg-config finds it." >&2
  exit 1
}
generator=
if command -v ninja >/dev/null; then generator=-GNinja; fi
mkdir -p "$build"
cmake ${generator:+"$generator"} -S "$source" -B "$build" -DCMAKE_BUILD_TYPE=RelWithDebInfo \
  -DPOLYVERSO_BINDINGS=OFF -DPOLYVERSO_COMPAT=OFF -DPOLYVERSO_TESTS=OFF >"$build/configure.log" 2>&1 || {
  cat "$build/configure.log" >&2
  echo "polyverso: the bundled library cannot be built; the group \"build\" of $source/packages.txt names the packages that it needs" >&2
  exit 1
}
cmake --build "$build" --parallel "${JOBS:-$(nproc)}" --target shipped
cmake --install "$build" --prefix "$build/installed" --strip >/dev/null
copy "$build/installed"
