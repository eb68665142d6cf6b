#!/bin/sh
# Prints the time that packages carry instead of the clock's, as SOURCE_DATE_EPOCH: that of the newest commit; in a tree without git, that
# of CHANGELOG.md, to which the source tarball gives the same time.
#   epoch.sh
set -eu
cd "$(dirname "$0")/../.."
if [ -e .git ]; then
  git log -1 --format=%ct
else
  stat -c %Y CHANGELOG.md
fi
