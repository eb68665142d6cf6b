#!/bin/sh
# Prints the version, which is written only in the public header: 0.1.0.
#   version.sh
set -eu
sed -n 's/^#define MV_VERSION_\(MAJOR\|MINOR\|PATCH\) \([0-9]*\)$/\2/p' "$(dirname "$0")/../../capi/include/polyverso/polyverso.h" | paste -sd .
