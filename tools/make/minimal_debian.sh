# Makes a minimal Debian 12 in a folder, and runs commands there; for scripts that source it (fresh.sh, tests/packages/deb.sh). Takes root
# and debootstrap. From this machine it takes only the network settings: resolver, hosts, certificates, the settings of apt and pip.
#   make_debian FOLDER [PACKAGE...]     sets root=FOLDER
#   inside COMMAND                      runs it there
# shellcheck shell=bash
suite=bookworm
root=

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

# A day's debootstrap serves all scripts: it is kept in build/.
make_debian() {
  root=$1
  shift
  chmod 755 "$root"
  local from packages kept
  packages=$(IFS=,; echo "ca-certificates${*:+,$*}")
  kept=$(cd "${BASH_SOURCE[0]%/*}/../.." && pwd)/build/debian-$suite-$packages.tar
  if [ -n "$(find "$kept" -mtime -1 2>/dev/null)" ]; then
    say "a minimal Debian ($suite) from $kept in $root"
    tar -xpf "$kept" --numeric-owner -C "$root"
  else
    from=$(mirror)
    say "a minimal Debian ($suite) from ${from:-the default mirror} in $root"
    debootstrap --variant=minbase --include="$packages" "$suite" "$root" ${from:+"$from"} >"$root.log" 2>&1 ||
      { tail -n 20 "$root.log" "$root/debootstrap/debootstrap.log" >&2; rm -f "$root.log"; fail "debootstrap"; }
    rm -f "$root.log"
    mkdir -p "${kept%/*}"
    tar -cpf "$kept.part" --numeric-owner -C "$root" . && mv "$kept.part" "$kept"
  fi
  lend_network
}
