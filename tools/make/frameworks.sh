#!/bin/bash
# Runs tests/frameworks with the real PyTorch, Keras, JAX, pandas, Theano, aesara, pytensor and Lasagne, and the examples for them.
# Ends with the same lines as test.sh.
#   frameworks.sh [TORCH]     TORCH, such as 2.6: PyPI's PyTorch of this version (gigabytes), instead of Debian's
#
# PyTorch is Debian's if Debian's Python can load the tree's module. The others are PyPI's, each in an environment of its
# own (build/frameworks), because they need different versions of numpy.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
. tools/make/ahead.sh
. tools/make/environment.sh
wanted=${1:-}
started=$SECONDS
summaries=
failed=

fail() { echo "test-frameworks: FAILED: $1, after $((SECONDS - started)) s"; exit 1; }

# has PYTHON MODULE...
has() {
  "$1" -c 'import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]' "${@:2}" 2>/dev/null
}

# tests LABEL PYTHON FILE...
tests() {
  local log=build/test-frameworks-$1.log
  echo "== tests, $1"
  "$2" -B -m pytest -q -p no:cacheprovider "${@:3}" 2>&1 | tee "$log" || failed+=" $1"
  summaries+="$1: $(tail -n 1 "$log")"$'\n'
}

# theano_flags: sets THEANO_FLAGS such that its modules compile fast: there are a hundred, of a few lines after the same long headers.
theano_flags() {
  local header=build/frameworks/theano/modules.h flags='-march=native -O0 -g0 -fno-math-errno' include
  include=$("$theano_python" -c 'import numpy, sysconfig; print("-I" + numpy.get_include(), "-I" + sysconfig.get_paths()["include"])')
  printf '#include <%s>\n' Python.h iostream math.h numpy/arrayobject.h numpy/arrayscalars.h >$header
  # g++ takes the compiled header if all flags are those that Theano has, and otherwise the header.
  # shellcheck disable=SC2086 # several flags
  g++ -w $flags -fPIC -DNPY_NO_DEPRECATED_API=NPY_1_7_API_VERSION $include -x c++-header $header -o $header.gch
  # With -march and blas.ldflags given, Theano does not try out in each process what there is, which takes a second. Processes that
  # wait for another's modules look every second.
  export THEANO_FLAGS="$compiled,gcc.cxxflags=$flags -include $PWD/$header,blas.ldflags=,compile.wait=1,compile.timeout=120"
}

tools/make/tree.sh release || fail "release does not build"
# shellcheck disable=SC2086 # several presets
build_ahead ${AHEAD:-}
. build/activate
base=$(python3 -c 'import sys; print(getattr(sys, "_base_executable", sys.executable))')

torch_python=
if [ -z "$wanted" ]; then
  for candidate in "$(command -v python3)" /usr/bin/python3; do
    if has "$candidate" polyverso torch yaml tqdm pytest matplotlib; then torch_python=$candidate; break; fi
  done
fi
if [ -z "$torch_python" ]; then
  torch_python=$(environment build/frameworks/torch "torch${wanted:+==$wanted.*}" 'keras>=3.6,<4' numpy pyyaml tqdm pytest matplotlib) ||
    fail "there is no PyTorch"
fi
# PyTorch's own tests need expecttest, which Debian lacks.
has "$torch_python" expecttest || [ -d build/frameworks/expecttest ] ||
  "$base" -m pip install -q --disable-pip-version-check --target build/frameworks/expecttest expecttest || fail "there is no expecttest"

# The other environments are made while PyTorch's tests run. Theano 1.0.5 and aesara need NumPy 1.23, which there is for Python up to 3.11.
keras=(build/frameworks/keras 'keras>=3.6,<4' 'jax>=0.4.35' numpy pandas pytest matplotlib)
theano=(build/frameworks/theano Theano==1.0.5 numpy==1.23.5 'scipy<1.11' 'setuptools<60' pytest)
aesara=(build/frameworks/aesara aesara==2.9.4 'numpy<1.24' 'setuptools<60' pytest)
pytensor=(build/frameworks/pytensor pytensor pytest)
old_numpy=
if "$base" -c 'import sys; sys.exit(sys.version_info >= (3, 12))'; then old_numpy=yes; fi
{
  environment "${keras[@]}"
  [ -z "$old_numpy" ] || { environment "${theano[@]}" && environment "${aesara[@]}"; }
  environment "${pytensor[@]}"
} >/dev/null &
environments=$!
PYTHONPATH=$PYTHONPATH:$PWD/build/frameworks/expecttest \
  tests torch "$torch_python" tests/frameworks/torch_test.py tests/frameworks/torch_distributed_test.py \
  tests/frameworks/torch_own_test.py tests/frameworks/torch_training_test.py tests/frameworks/example_test.py tests/parity/gossip_test.py

wait $environments
keras_python=$(environment "${keras[@]}") || fail "there is no Keras"
if [ -n "$old_numpy" ]; then
  theano_python=$(environment "${theano[@]}") || fail "there is no Theano"
  "$theano_python" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("lasagne") is None)' ||
    "$theano_python" -m pip install -q --disable-pip-version-check --no-deps Lasagne==0.1 || fail "there is no Lasagne"
  aesara_python=$(environment "${aesara[@]}") || fail "there is no aesara"
else
  echo "test-frameworks: without Theano, Lasagne and aesara, which need Python 3.11: this is $("$base" --version)"
fi
pytensor_python=$(environment "${pytensor[@]}") || fail "there is no pytensor"

tests keras "$keras_python" tests/frameworks/keras_test.py tests/frameworks/keras_training_test.py \
  tests/frameworks/multiverso_keras_test.py tests/frameworks/multiverso_examples_test.py tests/frameworks/jax_test.py \
  tests/frameworks/arrays_test.py
# Keras needs a later PyTorch than Debian's.
if KERAS_BACKEND=torch has "$torch_python" torch.func keras; then
  KERAS_BACKEND=torch tests keras-torch "$torch_python" tests/frameworks/keras_test.py tests/frameworks/keras_training_test.py \
    tests/frameworks/multiverso_keras_test.py
fi
# Models are compiled in the build folder, and Theano's default of float64 stays.
compiled=base_compiledir=$PWD/build/frameworks/compiled
if [ -n "$old_numpy" ]; then
  theano_flags
  tests theano "$theano_python" tests/frameworks/theano_test.py tests/frameworks/lasagne_test.py \
    tests/frameworks/multiverso_examples_test.py
  AESARA_FLAGS=$compiled tests aesara "$aesara_python" tests/frameworks/theano_test.py
fi
PYTENSOR_FLAGS=$compiled tests pytensor "$pytensor_python" tests/frameworks/theano_test.py

printf '\n%s' "$summaries"
[ -z "$failed" ] || fail "${failed# }"
echo "test-frameworks: ok, in $((SECONDS - started)) s"
