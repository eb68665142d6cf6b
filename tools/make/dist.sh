#!/bin/bash
# Makes the source tarball of HEAD in build/packages, with its checksum and its bill of materials (SPDX):
# polyverso-VERSION.tar.xz, .tar.xz.sha256 and .spdx.json. The same commit gives the same bytes everywhere.
#   dist.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
[ -e .git ] || { echo "dist: this tree has no git; the tarball is made of a clone" >&2; exit 1; }
[ -z "$(git status --porcelain)" ] || echo "dist: note: only what is committed is in the tarball"
version=$(tools/make/version.sh)
name=polyverso-$version
epoch=$(tools/make/epoch.sh)
mkdir -p build/packages
cd build/packages
rm -f "$name".tar.xz "$name".tar.xz.sha256 "$name".spdx.json
# umask: git's own setting would differ from machine to machine. One thread: xz's blocks depend on their number.
git -C ../.. -c tar.umask=0022 archive --format=tar --prefix="$name/" HEAD | xz -T1 -9 >"$name.tar.xz"
sha256sum -- "$name.tar.xz" >"$name.tar.xz.sha256"
python3 ../../tools/make/sbom.py --version "$version" --epoch "$epoch" --tarball "$name.tar.xz" >"$name.spdx.json"
cat "$name.tar.xz.sha256"
