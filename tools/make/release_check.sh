#!/bin/bash
# Runs every check of a release, continues after a failure, and prints one table: step, result, time. docs/releasing.md explains the steps.
#   release_check.sh [STEP...]     only these steps; otherwise all
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
logs=build/release-check
mkdir -p "$logs"

steps=("$@")
[ $# -gt 0 ] ||
  steps=(clean-tree changelog build check wheels perl-dist rocks dist debs reproducible containers abi-check man site test-packages)

# A step is a function below, or a target of the Makefile.
clean-tree() {
  local changes
  changes=$(git status --porcelain)
  [ -z "$changes" ] || { echo "not committed:"; echo "$changes"; return 1; }
}

changelog() {
  local version
  version=$(tools/make/version.sh)
  grep -q "^## \[$version\] - [0-9]" CHANGELOG.md || { echo "CHANGELOG.md: [$version] has no date"; return 1; }
}

# The Debian packages of build/packages again, in another folder: the same bytes.
reproducible() {
  local folder package status=0
  folder=$(mktemp -d "${TMPDIR:-/var/tmp}/polyverso-again.XXXXXX")
  mkdir -p "$folder/first" "$folder/elsewhere"
  cp build/packages/*.deb "$folder/first" || status=1
  tools/make/debs.sh "$folder/elsewhere" || status=1
  for package in "$folder"/first/*.deb; do
    if cmp "$package" "build/packages/$(basename "$package")"; then continue; fi
    status=1
    if command -v diffoscope >/dev/null; then diffoscope "$package" "build/packages/$(basename "$package")"; fi
  done
  rm -rf "$folder"
  return $status
}

# Of the Debian packages that are there: the target would build them again.
containers() { tools/make/deps.sh build packages && tools/make/containers.sh; }

is_target() { grep -q "^$1:.*## " Makefile; }

table=
failed=0
for step in "${steps[@]}"; do
  started=$SECONDS
  echo "== $step"
  if declare -F "$step" >/dev/null; then
    "$step" >"$logs/$step.log" 2>&1
  elif is_target "$step"; then
    make "$step" >"$logs/$step.log" 2>&1
  else
    echo "there is no such step" >"$logs/$step.log"
    false
  fi
  status=$?
  result=ok
  if [ $status != 0 ]; then
    failed=$((failed + 1))
    result=FAILED
    tail -n 20 "$logs/$step.log"
  fi
  table+=$(printf '%-14s %-7s %6s s  %s' "$step" $result $((SECONDS - started)) "$(tail -n 1 "$logs/$step.log" | cut -c 1-90)")$'\n'
done
printf '\n%-14s %-7s %8s  %s\n%s' step result time "last line of $logs/STEP.log" "$table"
if [ $failed = 0 ]; then echo "release-check: ok"; else echo "release-check: FAILED: $failed of ${#steps[@]} steps"; fi
[ $failed = 0 ]
