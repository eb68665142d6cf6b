#!/bin/bash
# Runs tests/engines: clusters that are started by MPICH's mpiexec, by Slurm, by torchrun and by Ray; and checks packaging/kubernetes. Then the tests
# with a real etcd, which `make test` skips where there is none.
# Ends with the same lines as test.sh. What is not installed is skipped with the reason.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
. tools/make/ahead.sh
. tools/make/environment.sh
started=$SECONDS
limit=700 # seconds

fail() { echo "test-engines: FAILED: $1, after $((SECONDS - started)) s"; exit 1; }

tools/make/tree.sh release || fail "release does not build"
# shellcheck disable=SC2086 # several presets
build_ahead ${AHEAD:-}
. build/activate
base=$(python3 -c 'import sys; print(getattr(sys, "_base_executable", sys.executable))')
# Ray, and the schemas of Kubernetes: PyPI has them, Debian does not.
ENGINES_PYTHON=$(environment build/engines 'ray>=2.40,<3' 'kubernetes-validate>=1.30' pyyaml numpy) || ENGINES_PYTHON=
export ENGINES_PYTHON
# An interrupt lets the tests end their processes.
run_tests() {
  timeout --foreground --signal=INT --kill-after=20 $limit \
    python3 -B -m pytest -q -rsx -o cache_dir="$PWD/build/engines-cache" --durations=5 "$@" tests/engines 2>&1 | tee build/test-engines.log
}
# As in test.sh: in CI, what has failed runs once more.
again=()
[ "${CI:-}" != true ] || again=(--repeat until-pass:2)
run_tests || { [ "${CI:-}" = true ] && echo "== the tests that failed run once more" && run_tests --last-failed; } || fail "tests/engines"
ctest --test-dir build -j 3 -R "^(unit/keeper_test|history/etcd|cluster/(etcd|etcd_members|named_run)_test)\$" "${again[@]}" --output-on-failure || fail "the tests with etcd"
echo "test-engines: ok, in $((SECONDS - started)) s"
