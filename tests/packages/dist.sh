#!/bin/bash
# artefact: polyverso-*.tar.xz polyverso-*.tar.xz.sha256 polyverso-*.spdx.json
# Checks the source tarball: its checksum, that it has git's files and no others, that a second one has the same bytes, that it configures
# without git; and its bill of materials, by the SPDX project's own validator.
#   dist.sh
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
repository=$(cd "$here/../.." && pwd)
# shellcheck source=tests/packages/lib/counting.sh
. "$here/lib/counting.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM
cd "$repository/build/packages" || exit 1
name=polyverso-$("$repository/tools/make/version.sh")

check "the checksum" sha256sum -c "$name.tar.xz.sha256"
mkdir "$scratch/tree"
check "it unpacks" tar -xf "$name.tar.xz" -C "$scratch/tree"
tree=$scratch/tree/$name
(cd "$tree" && find . ! -type d | sed 's:^\./::' | sort) >"$scratch/have"
git -C "$repository" ls-tree -r --name-only HEAD | sort >"$scratch/want"
check "the files of HEAD, and no others" diff "$scratch/want" "$scratch/have"

git clone -q --no-local "$repository" "$scratch/clone"
check "a clone makes a tarball" "$scratch/clone/tools/make/dist.sh"
for file in "$name.tar.xz" "$name.spdx.json"; do
  check "the same bytes: $file" cmp "$file" "$scratch/clone/build/packages/$file"
done
check "it configures without git" \
  env GIT_DIR=/nowhere cmake -G Ninja -S "$tree" -B "$scratch/build" -DPOLYVERSO_TESTS=OFF -DPython3_EXECUTABLE=/usr/bin/python3

python3 -m venv "$scratch/venv" && "$scratch/venv/bin/pip" install -q --disable-pip-version-check 'spdx-tools>=0.8,<0.9' ||
  fatal "there is no spdx-tools"
check "the bill of materials is SPDX 2.3" "$scratch/venv/bin/pyspdxtools" -i "$name.spdx.json"
has_all() {
  python3 - "$name.spdx.json" "$repository" <<'EOP'
import json, re, sys
from pathlib import Path
packages = {package["name"]: package for package in json.load(open(sys.argv[1]))["packages"]}
wanted = set()
for file, pattern in (
    ("tools/make/packages.txt", r"[a-z]\S*\s+(\S+)\s"),
    ("tools/make/requirements.txt", r"([A-Za-z0-9_.-]+)"),
    ("docs/site/requirements.txt", r"([A-Za-z0-9_.-]+)"),
    ("pyproject.toml", r"requires = .*\b(swig)\b"),
    ("pyproject.toml", r"requires = .*\b(scikit-build-core)\b"),
):
    found = {m[1] for line in Path(sys.argv[2], file).read_text().splitlines() if (m := re.match(pattern, line))}
    if not found:
        sys.exit(f"no dependency in {file}")
    wanted |= found
lacking = sorted(wanted - set(packages))
unlicensed = sorted(name for name, package in packages.items() if package["licenseConcluded"] == "NOASSERTION")
if lacking or unlicensed:
    sys.exit(f"not listed: {lacking}; without a licence in tools/make/licences.txt: {unlicensed}")
EOP
}
check "it names every dependency with a licence" has_all
result
