#!/bin/bash
# Checks the C library's ABI, and fails if programs that were compiled against an earlier header would break.
#   abi_check.sh [COMMIT]     COMMIT: compare with this one; otherwise with the newest tag
#
# 1. The exported symbols, prototypes and layouts are those of tests/abi/abi.txt (also part of `make test`).
# 2. abidiff finds no incompatible change since COMMIT, unless the soname has changed since: docs/releasing.md.
# 3. The first C program of COMMIT, compiled against its header and with the stub library of 2., runs with the new library.
set -euo pipefail
cd "$(dirname "$0")/../.."
fail() { echo "abi-check: $*" >&2; exit 1; }
compiler=${CC:-cc}
base=${1:-$(git describe --tags --abbrev=0 2>/dev/null || true)}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

tools/make/tree.sh release polyverso multiverso
echo "abi-check: exported symbols, prototypes and layouts"
ctest --test-dir build -R '^abi/' --output-on-failure --no-tests=error >"$scratch/log" ||
  { cat "$scratch/log"; fail "they are not those of tests/abi"; }

if [ -z "$base" ]; then
  echo "abi-check: there is no tag, so nothing is released, and there is no earlier ABI; BASE=COMMIT compares with a commit"
  exit 0
fi

# The soname of a commit, from its header: capi/CMakeLists.txt takes it from the major version.
soname() { echo "libpolyverso.so.$(sed -n 's/^#define MV_VERSION_MAJOR //p' "$1/polyverso/polyverso.h")"; }

# stub INCLUDE FOLDER: the library that the headers below INCLUDE promise.
stub() {
  mkdir -p "$2"
  python3 -B tests/abi/stub.py "$1/polyverso/polyverso.h" "$compiler" >"$2/stub.c"
  "$compiler" -g -fPIC -shared -w -Wl,-soname,"$(soname "$1")" -o "$2/libpolyverso.so" "$2/stub.c"
  ln -sf libpolyverso.so "$2/$(soname "$1")"
}

mkdir "$scratch/old"
git archive "$base" capi/include tests/install/consumer | tar -x -C "$scratch/old"
stub "$scratch/old/capi/include" "$scratch/old/lib"
stub "$PWD/capi/include" "$scratch/new/lib"

echo "abi-check: abidiff from $base ($(git rev-parse --short "$base"))"
status=0
abidiff --no-added-syms "$scratch/old/lib/libpolyverso.so" "$scratch/new/lib/libpolyverso.so" || status=$?
[ $((status & 3)) = 0 ] || fail "abidiff itself failed"
if [ "$(soname "$scratch/old/capi/include")" != "$(soname capi/include)" ]; then
  echo "abi-check: the soname has changed, so programs must be compiled again"
  exit 0
fi
# Bit 4: the ABI has changed; bit 8: incompatibly, such as a function that is gone. A field that is appended to a struct with a `size` is a
# change that the library accepts.
[ $((status & 8)) = 0 ] || fail "incompatible with $base: undo the change, or raise the major version, which changes the soname"

echo "abi-check: a program that was compiled against the header of $base"
program=$scratch/old/tests/install/consumer/client.c
[ -f "$program" ] || fail "$base has no tests/install/consumer/client.c"
"$compiler" -std=c99 -o "$scratch/client" "$program" -I"$scratch/old/capi/include" -L"$scratch/old/lib" -lpolyverso
env LD_LIBRARY_PATH="$PWD/build/lib" "$scratch/client" || fail "it does not run with the new library"
echo "abi-check: ok"
