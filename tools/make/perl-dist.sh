#!/bin/sh
# Writes build/packages/Polyverso-VERSION.tar.gz and Polyverso-AI-MXNet-VERSION.tar.gz, which `cpanm` and
# `perl Makefile.PL && make` install. The first contains the generated wrapper, so that SWIG is not needed, and the
# source of the library for machines without it.
set -eu
cd "$(dirname "$0")/../.."
tools/make/tree.sh release polyverso_perl
. tools/make/sources.sh
version=$(library_version)
stage=$PWD/build/packages/stage/perl
rm -rf "$stage"
mkdir -p "$stage/Polyverso/swig" "$stage/AI-MXNet/t/lib"

# pack FOLDER NAME: MakeMaker's own `make dist`, which adds META.json and META.yml
pack() {
  (
    cd "$1"
    touch MANIFEST
    find . -type f | sed 's:^\./::' | LC_ALL=C sort >"$stage/manifest"
    mv "$stage/manifest" MANIFEST
    { POLYVERSO_BUNDLED=1 POLYVERSO_REPLACE_AI_MXNET=1 perl Makefile.PL && make dist; } >"$stage/$2.log" 2>&1 || { cat "$stage/$2.log" >&2; exit 1; }
  )
  mv "$1/$2-$version.tar.gz" build/packages/
  echo "build/packages/$2-$version.tar.gz"
}

cp -R perl/lib perl/t packaging/perl/Makefile.PL packaging/perl/script LICENSE "$stage/Polyverso/"
cp CHANGELOG.md "$stage/Polyverso/Changes"
cp packaging/perl/README "$stage/Polyverso/README"
cp build/perl/Polyverso/CAPI.pm "$stage/Polyverso/lib/Polyverso/"
cp build/swig/perl/capi.c "$stage/Polyverso/CAPI.c"
# The headers that the wrapper includes, and those that they include.
cp swig/*.h "$stage/Polyverso/swig/"
rm "$stage/Polyverso/swig/"lua_*.h "$stage/Polyverso/swig/"python_*.h
bundle_library "$stage/Polyverso/bundled"
grep -q "VERSION = '$version'" perl/lib/Polyverso.pm || {
  echo "perl-dist: perl/lib/Polyverso.pm has another \$VERSION than polyverso.h, $version" >&2
  exit 1
}
pack "$stage/Polyverso" Polyverso

# Its tests use a helper of the core's, and run the core's tests of manuals on their own modules.
cp -R perl/AI-MXNet/lib perl/AI-MXNet/t LICENSE "$stage/AI-MXNet/"
cp CHANGELOG.md "$stage/AI-MXNet/Changes"
cp packaging/perl/AI-MXNet/README "$stage/AI-MXNet/README"
sed "s/@VERSION@/$version/" packaging/perl/AI-MXNet/Makefile.PL >"$stage/AI-MXNet/Makefile.PL"
cp perl/t/lib/TestCluster.pm "$stage/AI-MXNet/t/lib/"
cp perl/t/synopsis.t perl/t/pod.t "$stage/AI-MXNet/t/"
rm "$stage/AI-MXNet/t/ai_mxnet_page.t" # its script is in the repository's examples
pack "$stage/AI-MXNet" Polyverso-AI-MXNet
