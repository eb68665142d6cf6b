#!/bin/sh
# What `luarocks make` runs in a checkout, by polyverso-scm-1.rockspec: the build.sh of the rock `polyverso`, on the sources that
# tools/make/rocks.sh lays out, with the library of the build tree.
#   checkout.sh build|install ARGUMENT...     as build.sh
set -eu
cd "$(dirname "$0")/../.."
stage=$PWD/build/packages/stage/lua
if [ "$1" = build ]; then tools/make/rocks.sh --stage; fi
export POLYVERSO_BUNDLED=1 POLYVERSO_PREBUILT="$stage/installed"
exec sh "$stage/polyverso-$(tools/make/version.sh)/build.sh" "$@"
