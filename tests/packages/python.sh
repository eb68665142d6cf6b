#!/bin/bash
# artefact: polyverso-*-cp311-abi3-*.whl polyverso_compat-*.whl
# Tries the Python packages of `make wheels` in fresh virtual environments. Builds nothing and needs no network.
#   python.sh        PYTHONS="python3.12 ...": further interpreters to try; by default python3.11 to python3.14, those that exist
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
root=$PWD
wheel=$(ls "$root"/build/packages/polyverso-*-cp311-abi3-*.whl)
compat=$(ls "$root"/build/packages/polyverso_compat-*.whl)
tools=$root/build/tools/wheels
here=$root/tests/packages
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit
# Nothing of the build tree, nor of the user.
unset PYTHONPATH LD_LIBRARY_PATH MYPYPATH
export PYTHONNOUSERSITE=1 PYTHONDONTWRITEBYTECODE=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INDEX=1

# shellcheck source=tests/packages/lib/counting.sh
. "$here/lib/counting.sh"
# environment NAME PYTHON WHEEL...: a fresh virtual environment with these packages
environment() {
  "$2" -m venv "$work/$1" && "$work/$1/bin/pip" install -q --find-links "$tools/wheelhouse" --find-links "$root/build/packages" "${@:3}"
}
# program LANGUAGE: the program of this language in the README's ten lines
program() { awk -v fence="^\`\`\`$1\$" '/^## Ten lines/ { on = 1 } on && /^```$/ && shown { exit } shown { print } on && $0 ~ fence { shown = 1 }' "$root/README.md"; }

size_below_8_mb() { stat -c %s "$wheel" && [ "$(stat -c %s "$wheel")" -le 8000000 ]; }
tagged() { "$tools/bin/auditwheel" show "$wheel" | tr '\n' ' ' | grep -o 'consistent with the following platform tag: "manylinux_[^"]*"'; }
check "at most 8 MB" size_below_8_mb
check "auditwheel" tagged
check "abi3audit" "$tools/bin/abi3audit" --strict "$wheel"

program python >train.py
program c >train.c
expected="[0.107 0.215 0.322]"
prints() { [ "$("${@:2}" | tee /dev/stderr)" = "$1" ]; }

# Without numpy, by every Python that is here.
base=$(python3 -c 'import sys; print(getattr(sys, "_base_executable", sys.executable))')
number=0
for python in "$base" ${PYTHONS-python3.11 python3.12 python3.13 python3.14}; do
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
  number=$((number + 1))
  plain=$work/plain$number
  version=$("$python" -c 'import platform; print(platform.python_version())')
  check "$version: installs without numpy" environment "plain$number" "$python" "$wheel"
  check "$version: tables without numpy" "$plain/bin/python" "$here/python_without_numpy.py"
done

plain=$work/plain1
PATH=$plain/bin:$PATH
check "the command" prints "polyverso $(python3 -c 'import polyverso; print(polyverso.__version__)')" polyverso --version
check "python -m polyverso" bash -c 'python3 -m polyverso --help | grep -- --includes'
# shellcheck disable=SC2016 # the inner shell expands it
check "a C program" bash -c 'cc -std=c99 -Wall -Werror train.c $(python3 -m polyverso --includes --libs) -o train'
check "runs" prints "0.107 0.215 0.322" ./train
check "two processes" prints 2 bash -c 'polyverso run -n 2 -- python3 -c "import polyverso; polyverso.init().shutdown(); print(1)" | wc -l'
check "import within 100 ms of processor time" python3 "$here/python_import_time.py"

check "installs with numpy" environment full "$base" 'polyverso[numpy]' "$compat" pytest mypy types-PyYAML
PATH=$work/full/bin:$PATH
check "the ten lines" prints "$expected" python3 train.py
check "the ten lines in four processes" prints "$(printf "%s\n" "[w0] $expected" "[w1] $expected" "[w2] $expected" "[w3] $expected")" \
  bash -c 'polyverso run -n 4 -- python3 train.py | sort'
# What the tests find beside themselves in the repository, without the sources of the packages. A shell's background job ignores
# interrupts, which some tests send.
mkdir -p tree/tests tree/python/compat/dpwa tree/python/compat/multiverso
cp "$root"/tests/{forks,ports}.py tree/tests
cp -r "$root/python/tests" tree/python
cp -r "$root/python/compat/dpwa/tests" tree/python/compat/dpwa
cp -r "$root/python/compat/multiverso/tests" tree/python/compat/multiverso
cp -r "$root/samples" "$root/examples" "$root/data" tree
for folder in tests compat/multiverso/tests compat/dpwa/tests; do
  check "the tests in python/$folder" env --default-signal=INT --chdir "tree/python/$folder" python3 -m pytest -q -p no:cacheprovider .
done
check "polyverso-compat hides nothing" python3 "$here/python_compat.py"

check "mypy --strict of the ten lines" mypy --strict train.py
check "mypy --strict of the examples" "$here/examples_mypy" "$work/tree/examples"
check "stubtest" bash -c "stubtest polyverso --mypy-config-file '$here/python_mypy.ini' --allowlist '$here/python_stubs.txt'"

result
