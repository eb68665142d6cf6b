#!/bin/bash
# Tests `make demo` and `make test` on a machine with nothing installed: in a minimal Debian 12 in a scratch folder,
# with a fresh clone of HEAD. From this machine it takes only the network settings: resolver, hosts, certificates, the
# settings of apt and pip. Needs root, git and debootstrap; leaves nothing behind.
#   fresh.sh [--keep] [TARGET...]     --keep: keep the scratch folder; targets: demo test
set -euo pipefail
suite=bookworm
here=$(cd "$(dirname "$0")" && pwd)

say() { echo "fresh: $*"; }
fail() { say "failed: $*" >&2; exit 1; }

# Variables that locate certificates, proxies and package indexes. The clean environment inside inherits only these.
network_variables='^(https?_proxy|HTTPS?_PROXY|no_proxy|NO_PROXY|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|GIT_SSL_CAINFO|PIP_[A-Z_]+)='

# The Debian mirror from this machine's apt settings. If it is empty, debootstrap uses its default.
mirror() {
  local uri
  uri=$(apt-get indextargets --format '$(REPO_URI) $(COMPONENT) $(IDENTIFIER)' 2>/dev/null |
    awk '$2 == "main" && $3 == "Packages" && $1 !~ /security/ { print $1; exit }') || true
  echo "$uri"
}

# Copies a file or folder of this machine to the same place in the scratch system.
lend() {
  local path
  for path in "$@"; do
    if [ -e "$path" ]; then cp -rL --remove-destination --parents "$path" "$root"; fi
  done
}

lend_network() {
  lend /etc/resolv.conf /etc/hosts /usr/local/share/ca-certificates
  TMPDIR=/tmp chroot "$root" update-ca-certificates >/dev/null 2>&1 || fail "update-ca-certificates in $root"
  lend /etc/ssl/certs/ca-certificates.crt
  lend /etc/pip.conf "$HOME/.config/pip" "$HOME/.pip"
  lend /etc/apt/apt.conf /etc/apt/apt.conf.d /etc/apt/auth.conf /etc/apt/auth.conf.d /etc/apt/keyrings /etc/apt/trusted.gpg.d
  # Copy the files that the variables name, unless they exist inside.
  local value
  while read -r value; do
    if [[ $value == /* && ! -e $root$value ]]; then lend "$value"; fi
  done < <(env | grep -E "$network_variables" | cut -d= -f2-)
  # debootstrap has written a sources.list. Replace it only if this machine runs the same release.
  if grep -q "^VERSION_CODENAME=$suite" /etc/os-release; then
    rm -f "$root/etc/apt/sources.list"
    lend /etc/apt/sources.list /etc/apt/sources.list.d
    local key
    while read -r key; do lend "$key"; done < <(grep -rhoE '/usr/share/keyrings/[^] ]+' "$root/etc/apt" | sort -u)
  fi
}

# Runs a command in the scratch system. Its mounts and processes live in namespaces of their own, which end with it.
inside() {
  local variables
  mapfile -t variables < <(env | grep -E "$network_variables")
  unshare --mount --pid --fork --kill-child bash -euc '
    root=$1; shift
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    exec chroot "$root" /usr/bin/env -i "$@"' inside "$root" \
    HOME=/root USER=root LOGNAME=root SHELL=/bin/bash LANG=C.UTF-8 TERM=dumb \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    "${variables[@]}" bash -c "$1" </dev/null
}

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
chmod 755 "$root"

started=$SECONDS
from=$(mirror)
say "a minimal Debian ($suite) from ${from:-the default mirror} in $root"
debootstrap --variant=minbase --include=git,make,ca-certificates "$suite" "$root" ${from:+"$from"} >"$root.log" 2>&1 ||
  { tail -n 20 "$root.log" "$root/debootstrap/debootstrap.log" >&2; rm -f "$root.log"; fail "debootstrap"; }
rm -f "$root.log"
lend_network
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
