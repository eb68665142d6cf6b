#!/bin/bash
# Builds the Debian packages into build/packages, from the source tarball there: what is not in the tarball cannot get into them.
#   debs.sh [FOLDER]     FOLDER: where to build, new; otherwise a temporary one, removed afterwards
#
# The same tarball gives the same bytes in any folder: SOURCE_DATE_EPOCH dates the files, and the compiler's debug information, from which
# build ids are computed, has paths relative to the source (cmake/compile.cmake).
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
name=polyverso-$(tools/make/version.sh)
tarball=build/packages/$name.tar.xz
[ -f "$tarball" ] || { echo "debs: there is no $tarball; type: make dist" >&2; exit 1; }
umask 022

if [ $# -gt 0 ]; then
  folder=$1
  mkdir -p "$folder"
else
  folder=$(mktemp -d "${TMPDIR:-/var/tmp}/polyverso-debs.XXXXXX")
  trap 'rm -rf "$folder"' EXIT
fi
tar -xf "$tarball" -C "$folder"
cd "$folder/$name"
SOURCE_DATE_EPOCH=$(tools/make/epoch.sh)
export SOURCE_DATE_EPOCH

# Run paths name the build folder, and the packages need none: the library is in a standard folder.
linker="-Wl,-z,relro,-z,now"
# shellcheck disable=SC2086 # several flags
cmake -G Ninja -S . -B build -DCMAKE_BUILD_TYPE=RelWithDebInfo -DPOLYVERSO_DEBIAN=ON -DPOLYVERSO_TESTS=OFF \
  -DCMAKE_INSTALL_PREFIX=/usr -DCMAKE_SKIP_RPATH=ON -DPython3_EXECUTABLE=/usr/bin/python3 \
  -DPOLYVERSO_PYTHON_DIR=lib/python3/dist-packages \
  -DPOLYVERSO_LUA_LIBRARY_DIR="lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)/lua" \
  -DPOLYVERSO_PERL_DIR="$(perl -MConfig -e '($_ = $Config{vendorarchexp}) =~ s{^/usr/}{}; print')" \
  -DCMAKE_SHARED_LINKER_FLAGS="$linker" -DCMAKE_MODULE_LINKER_FLAGS="$linker" -DCMAKE_EXE_LINKER_FLAGS="$linker" \
  ${CMAKE_FLAGS:-} >configure.log 2>&1 || { cat configure.log >&2; exit 1; }
cmake --build build --parallel "${JOBS:-$(nproc)}" --target shipped
(cd build && cpack -G DEB) >cpack.log 2>&1 || { cat cpack.log >&2; exit 1; }
rm -f "$root"/build/packages/*.deb
cp build/packages/*.deb "$root/build/packages"
cd "$root/build/packages"
sha256sum -- *.deb
