#!/bin/sh
# Makes DIR/venv: the Python for which a build tree compiles its module, which runs the tests, and which DIR/activate
# puts on PATH.
#   venv.sh DIR
#
# The base is the `python3` on PATH, or /usr/bin/python3 if that one is older than 3.11; the environment sees the
# packages of the base. PyPI provides only the modules of requirements.txt that the base lacks; Debian's python3 lacks
# none, because its packages come from apt. The environment is made again only if the interpreter or requirements.txt
# changes.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
build=$(cd "$1" && pwd)
venv=$build/venv

# In an activated shell, `python3` is this environment itself: resolve it to the base interpreter.
describe='import sys; sys.version_info >= (3, 11) and print(getattr(sys, "_base_executable", sys.executable), sys.version.split()[0])'
base=
for candidate in python3 /usr/bin/python3; do
  base=$("$candidate" -c "$describe" 2>/dev/null) && [ -n "$base" ] && break
done
if [ -z "$base" ]; then
  echo "venv.sh: neither python3 on PATH nor /usr/bin/python3 is Python 3.11 or newer" >&2
  exit 1
fi

stamp="$base $(cksum <"$here/requirements.txt")"
if [ -f "$venv/stamp" ] && [ "$(cat "$venv/stamp")" = "$stamp" ]; then exit 0; fi

echo "venv: $venv from $base"
rm -rf "$venv"
"${base% *}" -m venv --system-site-packages --without-pip "$venv"
modules=$(sed -n 's/.*# module //p; t; s/^\([a-z][a-z0-9_]*\).*/\1/p' "$here/requirements.txt")
# shellcheck disable=SC2086 # one word per module
if ! "$venv/bin/python3" -c 'import sys, importlib.util as u; sys.exit(any(u.find_spec(m) is None for m in sys.argv[1:]))' $modules; then
  "$venv/bin/python3" -m ensurepip >/dev/null
  "$venv/bin/python3" -m pip install -q --disable-pip-version-check -r "$here/requirements.txt" </dev/null
fi
# CMake caches the headers of the interpreter that it found. A new interpreter needs a new search.
rm -f "$build/CMakeCache.txt"
echo "$stamp" >"$venv/stamp"
