#!/bin/sh
# Builds the shipped targets and the benchmarks in the release tree, and runs the benchmarks:  bench.sh [OPTION...]
# The options are those of bench/run.py.
set -eu
cd "$(dirname "$0")/../.."
export CMAKE_FLAGS="${CMAKE_FLAGS:-} -DPOLYVERSO_BENCH=ON"
tools/make/tree.sh release shipped benchmarks
. build/activate
exec python3 bench/run.py --build build "$@"
