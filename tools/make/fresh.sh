#!/bin/bash
# Tests `make demo` and `make test` on a machine with nothing installed: in a minimal Debian 12 in a scratch folder,
# with a fresh clone of HEAD. From this machine it takes only the network settings: resolver, hosts, certificates, the
# settings of apt and pip. Needs root, git and debootstrap; leaves nothing behind.
#   fresh.sh [--keep] [TARGET...]     --keep: keep the scratch folder; targets: demo test
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

say() { echo "fresh: $*"; }
fail() { say "failed: $*" >&2; exit 1; }

# shellcheck source=tools/make/minimal_debian.sh
. "$here/minimal_debian.sh"

keep=no
if [ "${1:-}" = --keep ]; then keep=yes; shift; fi
targets=("$@")
[ $# -gt 0 ] || targets=(demo test)

[ "$(id -u)" = 0 ] || fail "making a system takes root; type: sudo make fresh"
"$here/deps.sh" fresh
repository=$(git -C "$here" rev-parse --show-toplevel)
commit=$(git -C "$repository" rev-parse HEAD)
[ -z "$(git -C "$repository" status --porcelain)" ] || say "note: only what is committed is tried"

root=$(mktemp -d "${TMPDIR:-/var/tmp}/polyverso-fresh.XXXXXX")
cleanup() {
  if [ $keep = yes ]; then say "kept $root"; else rm -rf --one-file-system "$root"; fi
}
trap cleanup EXIT
trap 'exit 130' INT TERM

started=$SECONDS
make_debian "$root" git make
git -c safe.directory='*' -c advice.detachedHead=false clone --quiet --no-hardlinks "$repository" "$root/root/polyverso"
git -C "$root/root/polyverso" -c advice.detachedHead=false checkout --quiet --detach "$commit"
say "made in $((SECONDS - started)) s; trying $commit"

summary=
for target in "${targets[@]}"; do
  started=$SECONDS
  say "make $target"
  inside "cd ~/polyverso && make $target" || fail "make $target, after $((SECONDS - started)) s"
  summary+=" $target=$((SECONDS - started))s"
done
say "ok$summary"
