#!/bin/bash
# Installs the rocks of `make rocks` into empty trees, without the network, and runs the README's ten lines and the
# modules' own tests there: in Lua 5.1, LuaJIT and Lua 5.4. Ends with "N passed, N failed".
#
# artefact: polyverso-*.src.rock rocks-5.1/polyverso-*.rock rocks-5.4/polyverso-*.rock
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
packages=$PWD/build/packages
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
unset "${!LUA_@}" "${!POLYVERSO_@}" LD_LIBRARY_PATH PKG_CONFIG_PATH
# Only the system's programs, so that `polyverso` is the rock's.
given_path=$PATH
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
# shellcheck source=tests/packages/lib/counting.sh
. tests/packages/lib/counting.sh

# rocks LUA ARGUMENT...: LuaRocks for one version of Lua, on its own tree, which contacts no server
rocks() { luarocks --lua-version="$1" --tree="$scratch/tree-$1" "${@:2}"; }

# within LUA COMMAND...: with the paths of the tree
within() { (eval "$(rocks "$1" path)" && PATH="$scratch/tree-$1/bin:$PATH" && "${@:2}"); }

# The README's program, and the numbers that it prints.
sed -n '/^```lua/,/^```/p' README.md | sed '/^```/d' >"$scratch/readme.lua"
expected=$(sed -n 's/.*-> \([0-9. ]*\)$/\1/p' "$scratch/readme.lua")
alone() { [ "$(within "$1" "$2" "$scratch/readme.lua")" = "$expected" ]; }
two() { [ "$(within "$1" polyverso run -n 2 -- "$2" "$scratch/readme.lua" | sed 's/^\[w[01]\] //' | sort -u)" = "$expected" ]; }
# A copy of the tests: in the repository, the interpreters would find the modules in the folder above.
mkdir -p "$scratch/repository/lua/compat" "$scratch/repository/docs"
cp -R lua/spec "$scratch/repository/lua/"
cp docs/lua.md "$scratch/repository/docs/"
for parcel in multiverso torch ipc; do
  mkdir "$scratch/repository/lua/compat/$parcel"
  cp -R "lua/compat/$parcel/spec" "$scratch/repository/lua/compat/$parcel/"
done
specs() { (cd "$scratch/repository/lua" && within "$1" "$2" "$(command -v busted)" "$3"); }

# What the binary rocks link with are the packages that docs/installing.md tells their users to install.
libraries_are_documented() {
  local names
  names=$(find "$scratch/tree-$1/lib" -type f \( -name '*.so*' -o -path '*/polyverso/polyverso' \) -exec readelf -d {} + |
    sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort -u | grep -vE '^(ld-linux.*|libc|libm|libgcc_s|libstdc\+\+|libpolyverso)\.')
  diff <(sed -n 's/^apt install \(libuv1 .*\)/\1/p' docs/installing.md | tr ' ' '\n' | sort) \
    <(for name in $names; do dpkg -S "*/$name" | sed 's/:.*//'; done | sort -u)
}

# Rocks for another version of Lua would install, and then not load.
refused() { ! rocks "$1" install --only-server="$packages/rocks-$2" "$3"; }
check "Lua 5.1 refuses a binary rock for 5.4" refused 5.1 5.4 polyverso
check "Lua 5.4 refuses a binary rock for 5.1" refused 5.4 5.1 polyverso
check "Lua 5.1 refuses one of pure Lua for 5.4" refused 5.1 5.4 polyverso-multiverso

for lua in 5.1 5.4; do
  server=$packages/rocks-$lua
  for rock in polyverso polyverso-multiverso polyverso-torch polyverso-ipc; do
    check "Lua $lua: $rock installs" rocks "$lua" install --only-server="$server" "$rock"
  done
  check "Lua $lua: the command finds its library" within "$lua" polyverso --version
  check "Lua $lua: docs/installing.md names all libraries" libraries_are_documented "$lua"
  interpreters=lua$lua
  if [ "$lua" = 5.1 ]; then interpreters="lua5.1 luajit"; fi
  for interpreter in $interpreters; do
    check "$interpreter: README, one process" alone "$lua" "$interpreter"
    check "$interpreter: README, two processes" two "$lua" "$interpreter"
    check "$interpreter: spec" specs "$lua" "$interpreter" spec
    for parcel in multiverso torch ipc; do
      check "$interpreter: $parcel's spec" specs "$lua" "$interpreter" "compat/$parcel/spec"
    done
  done
  check "Lua $lua: polyverso is removed" rocks "$lua" remove --force polyverso
done

# A source rock is compiled against an installed library.
cmake --install build --prefix "$scratch/prefix" >/dev/null
compiles() { PKG_CONFIG_PATH="$scratch/prefix/lib/pkgconfig" rocks 5.4 install "$packages"/polyverso-[0-9]*.src.rock; }
links() { within 5.4 ldd "$scratch/tree-5.4/lib/lua/5.4/polyverso/capi.so" | grep "=> $scratch/prefix/" >/dev/null; }
check "the source rock compiles for the library that pkg-config finds" compiles
check "it is linked with that library" links
check "lua5.4: README with it" alone 5.4 lua5.4

# In a checkout. With the caller's Python, because another one would make the build tree anew.
checkout=$scratch/checkout
rocks_make() { PATH=$given_path luarocks --lua-version=5.4 --tree="$checkout" make; }
prints_in_checkout() {
  (eval "$(luarocks --lua-version=5.4 --tree="$checkout" path)" && [ "$(lua5.4 "$scratch/readme.lua")" = "$expected" ] &&
    [ "$(command -v polyverso)" = "$checkout/bin/polyverso" ] && polyverso --version)
}
check "luarocks make in a checkout" rocks_make
check "lua5.4: README and the command with it" prints_in_checkout

# A Torch is not overwritten.
mkdir -p "$scratch/other/torch"
echo "return {}" >"$scratch/other/torch/init.lua"
refuses() {
  ! LUA_PATH_5_4="$scratch/other/?/init.lua;;" rocks 5.4 install --force "$packages"/polyverso-torch-*.src.rock >"$scratch/torch" 2>&1 &&
    grep -q "there is a Torch" "$scratch/torch"
}
check "the stand-in for Torch refuses to hide a Torch" refuses

result
