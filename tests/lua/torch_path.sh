#!/bin/sh
# build/activate puts the stand-in for Torch on the path where there is no Torch, and only there.   torch_path.sh BUILD
set -eu
build=$1
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT

fail() {
  echo "$*" >&2
  exit 1
}

# Where `require "torch"` comes from, for an interpreter, after activating as often as told.
origin() {
  env -u LUA_PATH_5_4 -u LUA_PATH LUA_PATH="$2" LUA_PATH_5_4="$2" LUA_CPATH='' LUA_CPATH_5_4='' sh -eu -c '
    for _ in $3; do . "$1/activate"; done
    "$2" -e "print((require [[torch]]).origin or debug.getinfo(torch.class).source)"' - "$build" "$1" "$3"
}

echo 'return {origin = "installed"}' >"$folder/torch.lua"
for lua in lua5.1 luajit lua5.4; do
  case $(origin $lua ';;' once) in
    *lua/compat/torch/class.lua) ;;
    *) fail "$lua has no stand-in after activate" ;;
  esac
  [ "$(origin $lua "$folder/?.lua;;" once)" = installed ] || fail "$lua takes the stand-in before an installed Torch"
done

paths() {
  env LUA_PATH="$1" LUA_PATH_5_4="$1" sh -eu -c 'for _ in $2; do . "$1/activate"; done; echo "$LUA_PATH $LUA_PATH_5_4"' - "$build" "$2"
}
case $(paths "$folder/?.lua;;" once) in
  *compat*) fail "the stand-in is on the path beside an installed Torch" ;;
esac
[ "$(paths ';;' once)" = "$(paths ';;' 'once twice')" ] || fail "activating twice changes the path"
