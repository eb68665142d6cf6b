#!/bin/bash
# Makes random calls on random handles in every language, with the library of a sanitizer's tree.
#   random_handles.sh BUILD TREE SEED CALLS
# BUILD has the modules, TREE (build/asan, build/tsan) the library. Interpreters are not instrumented, so the
# sanitizer's runtime is preloaded.
set -uo pipefail
build=$1 tree=$2
export POLYVERSO_TEST_SEED=$3 POLYVERSO_TEST_CALLS=$4 POLYVERSO_TEST_SECONDS=$((200 + $4 / 50))
cd "$(dirname "$0")/../.." || exit
. "$build/activate"
export LD_LIBRARY_PATH=$tree/lib
case $tree in *tsan*) runtime=tsan ;; *) runtime=asan ;; esac
export LSAN_OPTIONS=detect_leaks=0 ASAN_OPTIONS=detect_leaks=0 # interpreters do not free all memory at exit
export TSAN_OPTIONS="second_deadlock_stack=1 suppressions=$PWD/tests/tsan.supp"
runtime=$(gcc -print-file-name="lib$runtime.so")
failed=
run() { # NAME FOLDER COMMAND...
  echo "== $1, $POLYVERSO_TEST_CALLS calls, seed $POLYVERSO_TEST_SEED, $tree"
  (cd "$2" && LD_PRELOAD=$runtime setarch "$(uname -m)" -R "${@:3}") || failed+=" $1"
}
run python python/tests python3 -B -m pytest -q -p no:cacheprovider test_random_handles.py
run perl perl perl t/random_handles.t
busted=$(command -v busted)
for interpreter in lua5.1 luajit lua5.4; do run $interpreter lua $interpreter "$busted" spec/random_handles_spec.lua; done
[ -z "$failed" ] || { echo "random_handles: FAILED:$failed"; exit 1; }
