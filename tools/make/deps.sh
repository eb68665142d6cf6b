#!/bin/sh
# Installs the missing Debian packages of the given groups (packages.txt). Takes little time if none is missing.
#   deps.sh [--check] GROUP...      --check: only list the missing packages
set -eu
list=$(dirname "$0")/packages.txt

check_only=no
if [ "${1:-}" = --check ]; then check_only=yes; shift; fi
wanted=$(for group in "$@"; do sed -n "s/^$group  *\([^ ]*\).*/\1/p" "$list"; done)
[ -n "$wanted" ] || { echo "deps.sh: no packages in the groups \"$*\" of $list" >&2; exit 2; }

if ! command -v dpkg-query >/dev/null; then
  echo "deps: this is no Debian, so nothing is checked; $list names what is needed" >&2
  exit 0
fi

# dpkg-query fails for packages that it does not know; these count as missing.
# shellcheck disable=SC2086 # one word per package
present=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' $wanted 2>/dev/null | sed -n 's/ installed$//p') || true
missing=$(printf '%s\n' "$present" - "$wanted" | awk '$0 == "-" { second = 1; next } second { if (!($0 in have)) print; next } { have[$0] }')
[ -n "$missing" ] || exit 0
missing=$(printf "%s" "$missing" | tr "\n" " ")

if [ "$check_only" = yes ]; then
  echo "These packages are missing: $missing" >&2
  echo "Type:  make deps" >&2
  exit 1
fi

as_root=
if [ "$(id -u)" != 0 ]; then
  if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
    as_root='sudo'
  else
    echo "These packages are missing, and installing them takes root. Type:" >&2
    echo "  su -c 'apt-get update && apt-get install -y --no-install-recommends $missing'" >&2
    exit 1
  fi
fi

apt() {
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get -y -o DPkg::Lock::Timeout=300 "$@" </dev/null
}
install() {
  # shellcheck disable=SC2086
  apt -q --no-install-recommends install $missing
}

echo "deps: installing $missing"
# The package lists may be absent (a fresh machine) or older than the archive. Only then update them.
# shellcheck disable=SC2086
if apt-get --simulate install $missing >/dev/null 2>&1 && install; then exit 0; fi
apt -q update
install
