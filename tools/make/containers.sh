#!/bin/bash
# Builds the images of packaging/Containerfile from the Debian packages in build/packages, and writes them there as OCI archives:
# polyverso-runtime-VERSION.oci.tar and polyverso-dev-VERSION.oci.tar.
#   containers.sh
#
# Needs root and buildah, but no daemon and no registry: the base image is made by debootstrap. BASE=IMAGE in the environment takes an image
# of a registry instead.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
say() { echo "containers: $*"; }
fail() { say "failed: $*" >&2; exit 1; }
# shellcheck source=tools/make/minimal_debian.sh
. "$here/minimal_debian.sh"

[ "$(id -u)" = 0 ] || fail "making images takes root"
version=$(tools/make/version.sh)
compgen -G 'build/packages/libpolyverso0_*.deb' >/dev/null || fail "there are no Debian packages in build/packages; type: make debs"
scratch=$(mktemp -d "${TMPDIR:-/var/tmp}/polyverso-containers.XXXXXX")
trap 'rm -rf --one-file-system "$scratch"' EXIT
trap 'exit 130' INT TERM
# Storage of its own, which is removed with the folder; so are buildah's temporary files, which it leaves behind when it is killed.
mkdir "$scratch/temporary"
export TMPDIR=$scratch/temporary
buildah() { command buildah --storage-driver vfs --root "$scratch/storage" --runroot "$scratch/run" "$@"; }

base=${BASE:-}
if [ -z "$base" ]; then
  mkdir "$scratch/debian"
  make_debian "$scratch/debian"
  base=localhost/debian:12
  working=$(buildah from scratch)
  buildah add -q "$working" "$scratch/debian" / >/dev/null
  buildah commit -q "$working" "$base" >/dev/null
  buildah rm "$working" >/dev/null
  rm -rf --one-file-system "$scratch/debian"
fi
epoch=$(tools/make/epoch.sh)
for stage in runtime dev; do
  say "$stage"
  buildah build -q --isolation chroot --network host --timestamp "$epoch" --build-arg BASE="$base" --target "$stage" \
    -t "localhost/polyverso-$stage:$version" -f packaging/Containerfile build/packages >/dev/null
  archive=build/packages/polyverso-$stage-$version.oci.tar
  rm -f "$archive"
  buildah push -q "localhost/polyverso-$stage:$version" "oci-archive:$archive:polyverso-$stage:$version"
  ls -l "$archive"
done
