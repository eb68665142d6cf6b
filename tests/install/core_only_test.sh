#!/bin/bash
# Configures with POLYVERSO_COMPAT=OFF and installs: none of the compatibility modules may be there, none of their tests
# may be registered, and the core must work in every language.
#   core_only_test.sh SOURCE BUILD LIBDIR PYTHON PYTHON_DIR PERL_DIR
#
# The test does not compile the library a second time. The option decides which modules are built, not how, so the new
# tree gets the files that the given one has built. Their run paths name the given tree, and stay: install_test.sh tests
# those of an installation.
set -euo pipefail
source=$1 build=$2 libdir=$3 python=$4 python_dir=$5 perl_dir=$6
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
tree=$scratch/tree
unset LD_LIBRARY_PATH PYTHONPATH PERL5LIB LUA_PATH LUA_CPATH LUA_PATH_5_4 LUA_CPATH_5_4 PKG_CONFIG_PATH CMAKE_PREFIX_PATH
unset "${!POLYVERSO_@}"
# shellcheck source=compat.sh
. "$(dirname "$0")/compat.sh"

step() { echo "-- $*"; }
fail() { echo "$*" >&2; exit 1; }
quietly() { "$@" >"$scratch/log" 2>&1 || { cat "$scratch/log" >&2; exit 1; }; }
installed() { (cd "$1" && find . ! -type d | sort); }

step "configured without the compatibility modules"
cuda=$(sed -n 's/^POLYVERSO_CUDA:BOOL=//p' "$build/CMakeCache.txt")
quietly cmake -G Ninja -S "$source" -B "$tree" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DPOLYVERSO_COMPAT=OFF -DPOLYVERSO_CUDA="$cuda" -DCMAKE_SKIP_RPATH=ON \
  -DPython3_EXECUTABLE="$python" -DCMAKE_INSTALL_LIBDIR="$libdir" \
  -DPOLYVERSO_PYTHON_DIR="$python_dir" -DPOLYVERSO_PERL_DIR="$perl_dir"
targets=$(ninja -C "$tree" -t targets all)
if grep -E '^[^ ]*(multiverso|polyverso_ipc)[^ ]*(\.so|\.o)?:' <<<"$targets" | grep -vE 'cmake_object_order|polyverso[^i]*\.dir'; then
  fail "these are built"
fi

step "its tests"
tests=$(ctest --test-dir "$tree" -N)
if grep -E ': (multiverso/|lua/|abi/multiverso|perl/AI-MXNet|[a-z0-9.]+/(multiverso|dpwa|torch|ipc)$|docs/(coming-from-|torch))' <<<"$tests"; then
  fail "these tests need the compatibility modules"
fi
for name in python/tests perl/tests luajit/tests docs/tables install/prefix; do
  grep -q ": $name\$" <<<"$tests" || fail "there is no test $name"
done

step "installed"
(cd "$build" && find lib bin/polyverso python perl lua share \( -path 'share/*' -o -name '*.so*' -o -name polyverso -o -name capi.py -o -name CAPI.pm \) ! -type d -print0) |
  while IFS= read -r -d '' file; do
    if [ ! -e "$tree/$file" ]; then
      mkdir -p "$tree/$(dirname "$file")"
      cp -P "$build/$file" "$tree/$file"
    fi
  done
quietly cmake --install "$tree" --prefix "$scratch/core"
quietly cmake --install "$build" --prefix "$scratch/all"
installed "$scratch/core" >"$scratch/core.txt"
installed "$scratch/all" >"$scratch/all.txt"
if grep -E "$compat_patterns" "$scratch/core.txt"; then fail "these are installed without the compatibility modules"; fi
# The rest is the same, so the patterns forget nothing.
if ! diff <(grep -vE "$compat_patterns" "$scratch/all.txt") "$scratch/core.txt"; then
  fail "these differ from an installation of everything, and are not compatibility modules"
fi
count=$(grep -cE "$compat_patterns" "$scratch/all.txt") || fail "an installation of everything has no compatibility modules"
echo "$count of $(wc -l <"$scratch/all.txt") files are compatibility modules"

step "the core in every language"
core=$scratch/core
export LD_LIBRARY_PATH=$core/$libdir
export PYTHONPATH=$core/$python_dir PERL5LIB=$core/$perl_dir PYTHONDONTWRITEBYTECODE=1
"$python" -c 'import polyverso, polyverso.kvstore, polyverso.group, polyverso.distlearn, polyverso.gossip; polyverso.init().shutdown()'
"$python" -c 'import importlib.util; assert importlib.util.find_spec("multiverso") is None'
modules=$(cd "$source/perl/lib" && find . -name '*.pm' | sed 's:^\./::; s:/:\:\::g; s:\.pm$::' | sort)
for module in $modules; do perl -we "use $module;" || fail "$module does not load"; done
if perl -e 'require AI::MXNet' 2>/dev/null; then fail "there is an AI::MXNet"; fi
for lua in lua5.1 luajit lua5.4; do
  abi=${lua#lua}
  abi=${abi/jit/5.1}
  path="$core/share/lua/$abi/?.lua;$core/share/lua/$abi/?/init.lua"
  for module in polyverso polyverso.kvstore polyverso.group polyverso.distlearn polyverso.gossip polyverso.tensor polyverso.optimizer; do
    env LUA_PATH="$path" LUA_CPATH="$core/lib/lua/$abi/?.so" LUA_PATH_5_4="$path" LUA_CPATH_5_4="$core/lib/lua/$abi/?.so" \
      "$lua" -e "require '$module'" || fail "$lua: $module does not load"
  done
done
