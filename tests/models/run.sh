#!/bin/sh
# Checks one model with SPIN: run.sh MODEL.pml [SWITCH...]
#
# A model is a .pml file. Lines of its first comment control the check:
#   BUG_NAME: text        puts a bug back in. With -DBUG_NAME the model has to fail.
#   NIGHTLY_NAME: flags   a larger instance, such as -DRANKS=3, that only `make nightly` checks. It has to hold.
#   search: flags         options of the search; default -m1000000. With -a it searches for acceptance cycles.
# CMakeLists.txt creates a test for each model and for each of its bugs, so a new model needs only its file.
#
# The check passes if the model holds in every reachable state, or, with a BUG_... switch, if it fails in one. A failure prints the shortest
# schedule found.
set -eu
model=$(realpath "$1")
shift
name=$(basename "$model" .pml)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
header=$(sed '/\*\//q' "$model")
search=$(printf '%s\n' "$header" | sed -n 's/^ *\** *search: *//p')
flags=''
bug=''
optimize=-O0 # compiling takes most of the time, except for the larger instances
for switch in "$@"; do
  case $switch in
    BUG_*) flags="$flags -D$switch" bug=$switch ;;
    NIGHTLY_*) optimize=-O1 flags="$flags $(printf '%s\n' "$header" | sed -n "s/^ *\** *$switch: *//p")" ;;
    *) echo "$0: unknown switch $switch" >&2; exit 2 ;;
  esac
done
case " $search " in
  *" -a "*) kind='' ;;
  *) kind=-DSAFETY ;;
esac
cd "$work"
# shellcheck disable=SC2086 # several flags
{
  spin $flags -a "$model" >log 2>&1 || { cat log; exit 2; }
  ${CC:-cc} $optimize -w $kind -DMEMLIM=4000 -DCOLLAPSE -o pan pan.c
  ./pan ${search:--m1000000} >log
}
complete=yes
grep -q "max search depth too small\|memory limit\|out of memory\|interrupted" log && complete=no
if grep -q "errors: 0" log; then
  held=yes
else
  held=no
fi
if [ -z "$bug" ] && { [ $held = no ] || [ $complete = no ]; }; then
  cat log
  [ $held = yes ] || { ./pan -i ${search:--m1000000} >/dev/null 2>&1 || true; spin -k "$name.pml.trail" -t -p -g $flags "$model" 2>&1 | tail -200; }
  echo "$name: FAILED$flags"
  exit 1
elif [ -n "$bug" ] && [ $held = yes ]; then
  cat log
  echo "$name: FAILED: it holds although $bug puts a bug back in"
  exit 1
fi
grep "states, stored\|State-vector" log
echo "$name: ok$flags"
