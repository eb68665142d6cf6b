# shellcheck shell=bash
# For scripts: environments for packages of PyPI that would be too much for the tree's own.

# environment FOLDER REQUIREMENT...: installs these into FOLDER unless they are there, for the interpreter $base. Prints its interpreter.
environment() {
  local folder=$1 stamp
  stamp="$base ${*:2}"
  if [ ! -f "$folder/stamp" ] || [ "$(cat "$folder/stamp")" != "$stamp" ]; then
    rm -rf "$folder"
    { "$base" -m venv "$folder" && "$folder/bin/python3" -m pip install -q --disable-pip-version-check "${@:2}"; } </dev/null >&2 || return 1
    echo "$stamp" >"$folder/stamp"
  fi
  echo "$PWD/$folder/bin/python3"
}
