#!/bin/bash
# artefact: polyverso-runtime-*.oci.tar polyverso-dev-*.oci.tar
# Starts the container images with buildah, without a daemon, and runs two workers of each language in them; compiles a program in `dev`.
#   container.sh     Takes root
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
repository=$(cd "$here/../.." && pwd)
# shellcheck source=tests/packages/lib/counting.sh
. "$here/lib/counting.sh"
[ "$(id -u)" = 0 ] || fatal "starting images takes root"
"$repository/tools/make/deps.sh" packages || exit 1
scratch=$(mktemp -d "${TMPDIR:-/var/tmp}/polyverso-container.XXXXXX")
trap 'rm -rf --one-file-system "$scratch"' EXIT
trap 'exit 130' INT TERM
mkdir "$scratch/temporary"
export TMPDIR=$scratch/temporary # buildah leaves files there when it is killed
buildah() { command buildah --storage-driver vfs --root "$scratch/storage" --runroot "$scratch/run" "$@"; }

for stage in runtime dev; do
  archive=$(compgen -G "$repository/build/packages/polyverso-$stage-*.oci.tar" | head -n 1)
  container=$(buildah from "oci-archive:$archive") || fatal "$archive is no image"
  inside() { buildah run --isolation chroot --network host "$container" -- "$@"; }
  check "$stage: the command" inside polyverso --version
  check "$stage: two workers in Python" inside polyverso run -n 2 -- python3 -c 'import polyverso
with polyverso.init() as node: assert node.size == 2'
  check "$stage: two workers in Perl" inside polyverso run -n 2 -- perl -we \
    'use Polyverso; Polyverso->init; my ($size) = Polyverso::mv_size(0); die $size unless $size == 2; Polyverso::mv_shutdown(0)'
  for lua in lua5.1 luajit lua5.4; do
    check "$stage: two workers in $lua" inside polyverso run -n 2 -- "$lua" -e \
      'local mv = require "polyverso"; mv.mv_init(); assert(mv.mv_size(0) == 2); mv.mv_shutdown(0)'
  done
done
buildah copy -q "$container" "$repository/examples/cpp" /tmp/cpp >/dev/null
check "dev: a C++ program" inside sh -c 'cd /tmp/cpp && cmake -G Ninja -S . -B build && cmake --build build && polyverso run -n 2 -- build/train'
result
