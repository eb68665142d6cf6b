#!/bin/sh
# Runs the tests of the dashboard and of packaging/prometheus and packaging/grafana with what `make test` skips if it is not there: Chromium,
# Prometheus, and Grafana's types from PyPI.
set -eu
cd "$(dirname "$0")/../.."
tools/make/tree.sh release
if [ ! -d build/grafana ]; then
  python3 -m pip install -q --disable-pip-version-check --target build/grafana.new 'grafana-foundation-sdk==1769699998!10.1.0' </dev/null &&
    mv build/grafana.new build/grafana || echo "test-dashboard: continues without Grafana's types" >&2
fi
. build/activate
exec ctest --preset release -R '^dashboard/' --output-on-failure
