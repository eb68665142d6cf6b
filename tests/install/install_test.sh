#!/bin/bash
# Installs the build tree into a scratch prefix and uses it like a new user: a C program built with pkg-config and with
# find_package, the command, and every language, each with only the installed tree.
#   install_test.sh BUILD LIBDIR COMPAT [PYTHON PYTHON_DIR PERL_DIR]     COMPAT: ON or OFF, as POLYVERSO_COMPAT
set -euo pipefail
build=$1 libdir=$2 compat=$3
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
prefix=$scratch/prefix

# Remove the settings of an activated build tree.
unset LD_LIBRARY_PATH PYTHONPATH PERL5LIB LUA_PATH LUA_CPATH LUA_PATH_5_4 LUA_CPATH_5_4 PKG_CONFIG_PATH CMAKE_PREFIX_PATH
unset "${!POLYVERSO_@}"

step() { echo "-- $*"; }
expect() { # EXPECTED COMMAND...
  local expected=$1 got
  shift
  got=$("$@")
  [ "$got" = "$expected" ] || { echo "$*: printed \"$got\", not \"$expected\"" >&2; exit 1; }
}

step "cmake --install, and the whole moved elsewhere"
cmake --install "$build" --prefix "$scratch/first" >"$scratch/install.log" || { cat "$scratch/install.log" >&2; exit 1; }
mv "$scratch/first" "$prefix"
version=$(PKG_CONFIG_PATH=$prefix/$libdir/pkgconfig pkg-config --modversion polyverso)

step "a C program by way of pkg-config"
read -ra flags < <(PKG_CONFIG_PATH=$prefix/$libdir/pkgconfig pkg-config --cflags --libs polyverso)
cc -std=c99 -Wall -Wextra -Werror -o "$scratch/client" "$here/consumer/client.c" "${flags[@]}"
expect "$version: 2 2 2" env LD_LIBRARY_PATH="$prefix/$libdir" "$scratch/client"

step "a C++ program by way of pkg-config"
c++ -std=c++20 -Wall -Wextra -Werror -o "$scratch/train" "$here/../../examples/cpp/train.cpp" "${flags[@]}"
expect "y = 3.00 x -1.00" env LD_LIBRARY_PATH="$prefix/$libdir" "$scratch/train"

step "a C program by way of find_package(polyverso CONFIG)"
cmake -G Ninja -S "$here/consumer" -B "$scratch/consumer" -DCMAKE_PREFIX_PATH="$prefix" >"$scratch/configure.log" ||
  { cat "$scratch/configure.log" >&2; exit 1; }
cmake --build "$scratch/consumer" >"$scratch/build.log" || { cat "$scratch/build.log" >&2; exit 1; }
expect "$version: 2 2 2" "$scratch/consumer/client"

programs_for_multiverso() {
  step "a program for Multiverso, by way of find_package"
  cmake -G Ninja -S "$here/consumer-multiverso" -B "$scratch/consumer-multiverso" -DCMAKE_PREFIX_PATH="$prefix" >"$scratch/configure.log" ||
    { cat "$scratch/configure.log" >&2; exit 1; }
  cmake --build "$scratch/consumer-multiverso" >"$scratch/build.log" || { cat "$scratch/build.log" >&2; exit 1; }
  expect "2 2 2" "$scratch/consumer-multiverso/multiverso"

  step "the same, linked by hand; and its library opened by its path alone"
  cc -std=c99 -Wall -Wextra -Werror -o "$scratch/multiverso" "$here/consumer-multiverso/multiverso.c" -I"$prefix/include" \
    -L"$prefix/$libdir" -Wl,-rpath-link,"$prefix/$libdir" -lmultiverso
  expect "2 2 2" env LD_LIBRARY_PATH="$prefix/$libdir" "$scratch/multiverso"
  python3 -c '
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.MV_Init(None, None)
sys.exit(library.MV_NumWorkers() != 1)' "$prefix/$libdir/libmultiverso.so"
}
[ "$compat" = OFF ] || programs_for_multiverso

step "the command, running the first program"
"$prefix/bin/polyverso" run -n 1 --metrics 0 -- "$scratch/consumer/client" >"$scratch/run.log" || { cat "$scratch/run.log" >&2; exit 1; }

step "the rules for Prometheus and the dashboard for Grafana"
for file in prometheus/polyverso.rules.yml grafana/polyverso.json; do
  cmp "$here/../../packaging/$file" "$prefix/share/polyverso/$file"
done

step "polyverso-env, for a C program"
env_of=$prefix/bin/polyverso-env
expect "$version: 2 2 2" "$env_of" "$scratch/client"
expect "polyverso $version" "$env_of" polyverso --version
status=0
"$env_of" sh -c 'exit 7' || status=$?
[ $status = 7 ]
expect "$prefix/bin/polyverso" sh -c 'eval "$("$1")" && command -v polyverso' sh "$env_of"
"$env_of" --frob 2>"$scratch/log" && exit 1
grep -q "there is no option --frob" "$scratch/log"
"$env_of" --help | grep -q usage

[ $# -gt 3 ] || exit 0
python=$4 python_dir=$5 perl_dir=$6

step "Python"
expect "$version" env PYTHONPATH="$prefix/$python_dir" "$python" -c '
import polyverso
with polyverso.init() as node: print(polyverso.capi.mv_version_text())'

compatible_python() {
  expect 1 env PYTHONPATH="$prefix/$python_dir" "$python" -c '
import multiverso
multiverso.init(); print(multiverso.workers_num()); multiverso.shutdown()'
  # The replacement for dpwa is in a folder that users add to PYTHONPATH.
  expect w1 env PYTHONPATH="$prefix/$python_dir:$prefix/share/polyverso/python-compat" "$python" -c '
import tempfile
from dpwa.dpwa import DpwaConnection
with tempfile.NamedTemporaryFile("w") as file:
    file.write("- nodes:\n  - {name: w1, host: localhost, port: 0}\n")
    file.flush()
    conn = DpwaConnection("w1", file.name)
conn.update_send(b"payload", 1.0)
print(conn.name, end="")'
}
[ "$compat" = OFF ] || compatible_python

step "Perl"
expect "$version" env PERL5LIB="$prefix/$perl_dir" perl -we '
use Polyverso; Polyverso->init; print Polyverso::mv_version_text(); Polyverso::mv_shutdown(0)'
if [ "$compat" = ON ]; then
  expect 6 env PERL5LIB="$prefix/$perl_dir" perl -we 'use AI::MXNet qw(mx); print mx->nd->array([1, 2, 3])->sum->asscalar'
fi

for lua in lua5.1 luajit lua5.4; do
  step "$lua"
  abi=${lua#lua}
  abi=${abi/jit/5.1}
  expect "$version" env LUA_PATH="$prefix/share/lua/$abi/?.lua;$prefix/share/lua/$abi/?/init.lua" \
    LUA_CPATH="$prefix/lib/lua/$abi/?.so" "$lua" -e '
local mv = require "polyverso"; mv.mv_init(); io.write(mv.mv_version_text()); mv.mv_shutdown(0)'
  [ "$compat" = ON ] || continue
  # The replacement for Torch is in a folder that users add to LUA_PATH.
  stand_in="$prefix/share/polyverso/lua-compat"
  expect 6 env LUA_PATH="$prefix/share/lua/$abi/?.lua;$stand_in/?.lua;$stand_in/?/init.lua" \
    LUA_CPATH="$prefix/lib/lua/$abi/?.so" "$lua" -e '
require "torch"; io.write(string.format("%.0f", torch.range(1, 3):sum()))'
  expect 12 env LUA_PATH="$prefix/share/lua/$abi/?.lua;$prefix/share/lua/$abi/?/init.lua;$stand_in/?.lua;$stand_in/?/init.lua" \
    LUA_CPATH="$prefix/lib/lua/$abi/?.so" "$lua" -e '
require "torch"; require "regress"; require "distlearn.AllReduceSGD"; require "ipc.LocalhostTree"
io.write(string.format("%.0f", require "libipc".map(1, function(t) return t:mul(2) end, torch.range(1, 3)):join():sum()))'
done

step "polyverso-env, for every language"
echo 'return "mine"' >"$scratch/mine.lua"
expect "$version 1" "$env_of" "$python" -c '
import polyverso
with polyverso.init() as node: print(polyverso.capi.mv_version_text(), node.size)'
expect "$version" "$env_of" perl -we 'use Polyverso; print Polyverso::mv_version_text()'
for lua in lua5.1 luajit lua5.4; do
  expect "$version" "$env_of" "$lua" -e 'io.write(require("polyverso").mv_version_text())'
  # LUA_PATH_5_4 hides LUA_PATH from Lua 5.4, so its value goes along.
  expect mine env LUA_PATH="$scratch/?.lua;;" "$env_of" "$lua" -e 'io.write((require("mine")))'
done
expect "[w0] 2 2" "$env_of" polyverso run -n 2 -- "$python" -c '
import polyverso
with polyverso.init() as node:
    if node.rank == 0: print(node.size, node.num_workers)'

# An own folder stays behind the new ones, what contains a quote survives, and a second time changes nothing.
mkdir "$scratch/it's mine"
echo 'mine = 1' >"$scratch/it's mine/own.py"
expect "1 same" env PYTHONPATH="$scratch/it's mine" sh -c '
eval "$("$1")"
once=$PYTHONPATH:$LUA_PATH:$LUA_CPATH_5_4
eval "$("$1")"
[ "$once" = "$PYTHONPATH:$LUA_PATH:$LUA_CPATH_5_4" ] || echo different
"$2" -c "import own, polyverso; print(own.mine, \"same\")"' sh "$env_of" "$python"
expect "$prefix/$python_dir:own" env PYTHONPATH=own "$env_of" sh -c 'echo "$PYTHONPATH"'
