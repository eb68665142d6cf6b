#!/bin/bash
# Installs the distributions of `make perl-dist` into empty folders, without the network, and runs their own tests and
# the README's ten lines there. Once by Makefile.PL with an installed library, once by cpanm with the bundled one, which
# takes minutes. Ends with "N passed, N failed".
#
# artefact: Polyverso-[0-9]*.tar.gz Polyverso-AI-MXNet-*.tar.gz
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
packages=$PWD/build/packages
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
unset "${!PERL@}" "${!POLYVERSO_@}" LD_LIBRARY_PATH PKG_CONFIG_PATH
# Only the system's programs, so that `polyverso` is the distribution's.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=$scratch
# shellcheck source=tests/packages/lib/counting.sh
. tests/packages/lib/counting.sh

# The README's program, and the numbers that it prints.
sed -n '/^```perl/,/^```/p' README.md | sed '/^```/d' >"$scratch/readme.pl"
expected=$(sed -n 's/.*-> \([0-9. ]*\)$/\1/p' "$scratch/readme.pl")
alone() { [ "$(perl "$scratch/readme.pl")" = "$expected" ]; }
two() { [ "$(polyverso run -n 2 -- perl "$scratch/readme.pl" | sed 's/^\[w[01]\] //' | sort -u)" = "$expected" ]; }
unpack() { tar -C "$scratch" -xzf "$packages"/"$1"-[0-9]*.tar.gz && mv "$scratch/$1"-[0-9]* "$scratch/$2"; }
# within BASE COMMAND...: with the paths of an installation by INSTALL_BASE
within() { PERL5LIB=$1/lib/perl5 PATH=$1/bin:$PATH "${@:2}"; }

# The documents name the packages that the distribution's README names.
packages_of() { sed -n '/apt install g++/,/libperl-dev/p' "$1" | sed 's/^ *//'; }
same_packages() { [ -n "$(packages_of docs/installing.md)" ] && diff <(packages_of docs/installing.md) <(packages_of packaging/perl/README); }
check "docs/installing.md names what compiling needs" same_packages

# With an installed library.
cmake --install build --prefix "$scratch/prefix" >/dev/null
export PKG_CONFIG_PATH=$scratch/prefix/lib/pkgconfig
base=$scratch/base
in_sources() { (cd "$scratch/sources" && within "$scratch/prefix" "$@"); }
check "Polyverso unpacks" unpack Polyverso sources
check "perl Makefile.PL finds the library" in_sources perl Makefile.PL INSTALL_BASE="$base"
check "make, without SWIG" in_sources make
check "make test" in_sources make test
check "make install INSTALL_BASE=" in_sources make install
check "README, one process" within "$base" alone
# All of the output is read: with pipefail, a reader that ends early makes ldd fail.
linked() { ldd "$(find "$base" -name CAPI.so)" | grep "=> $scratch/prefix/" >/dev/null; }
check "it is linked with the installed library" linked
manual() {
  within "$base" perl -MPolyverso -MPolyverso::Table -MPod::Text -e 'Pod::Text->new->parse_from_file($INC{"Polyverso/Table.pm"})' | grep staleness >/dev/null
}
check "its manual" manual
unset PKG_CONFIG_PATH

# With the bundled library, by cpanm into a local::lib.
base=$scratch/local
offline() { cpanm --local-lib "$base" --mirror-only --mirror "file://$scratch/none" --verbose "$@"; }
check "cpanm ./Polyverso-*.tar.gz builds the library, tests and installs" offline "$packages"/Polyverso-[0-9]*.tar.gz
check "README, one process" within "$base" alone
check "README, two processes, by the installed command" within "$base" two
mv "$base" "$scratch/moved"
check "the installation can be moved" within "$scratch/moved" two
mv "$scratch/moved" "$base"

# AI::MXNet.
check "cpanm ./Polyverso-AI-MXNet-*.tar.gz" offline "$packages"/Polyverso-AI-MXNet-[0-9]*.tar.gz
check "it loads" within "$base" perl -MAI::MXNet=mx -e 'exit !(mx->kv->create("local")->type eq "local")'
check "it installs over itself" offline --reinstall "$packages"/Polyverso-AI-MXNet-[0-9]*.tar.gz
mkdir -p "$scratch/real/AI"
echo 'package AI::MXNet; our $VERSION = "1.5"; 1;' >"$scratch/real/AI/MXNet.pm"
check "AI-MXNet unpacks" unpack Polyverso-AI-MXNet mxnet
refuses() {
  cd "$scratch/mxnet" && ! PERL5LIB=$scratch/real:$base/lib/perl5 perl Makefile.PL "$@" 2>&1 | tee "$scratch/refusal" &&
    grep -q "there is another AI::MXNet, $scratch/real/AI/MXNet.pm" "$scratch/refusal"
}
accepts() { cd "$scratch/mxnet" && PERL5LIB=$scratch/real:$base/lib/perl5 perl Makefile.PL --replace; }
check "Makefile.PL refuses to hide a real AI::MXNet" refuses
check "and does so with --replace" accepts

result
