#!/bin/sh
# prepare.sh [NODES [FIRST_PORT]]: writes nodes.yaml, with NODES nodes, or one for each processor of this machine.
set -eu
cd "$(dirname "$0")"
nodes=${1:-$(nproc)} port=${2:-45000}
{
  echo "# Written by prepare.sh; docs/gossip.md explains every key."
  echo "- nodes:"
  for i in $(seq "$nodes"); do
    echo "  - {name: w$i, host: localhost, port: $((port + i - 1))}"
  done
  cat <<'END'
- fetch_probability: 1
- timeout_ms: 2500
- interpolation: constant
- divergence_threshold: 0
- constant: { value: 0.5 }
- clock: 0
- loss: 0
END
} >nodes.yaml
echo "nodes.yaml: $nodes nodes from port $port on"
