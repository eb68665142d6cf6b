#!/bin/sh
# Runs a command as a user would who typed `source build/activate`.   activated.sh BUILD COMMAND...
. "$1/activate"
# Each process that imports NumPy would start a thread for each processor, which spin: a quarter of what a short-lived process costs.
export OPENBLAS_NUM_THREADS="${OPENBLAS_NUM_THREADS:-1}"
shift
exec "$@"
