#!/bin/bash
# artefact: libpolyverso0_*.deb libpolyverso-dev_*.deb polyverso-tools_*.deb libpolyverso-ucx_*.deb libpolyverso-mpi-openmpi_*.deb libpolyverso-mpi-mpich_*.deb python3-polyverso_*.deb libpolyverso-perl_*.deb lua-polyverso_*.deb
# Checks the Debian packages by lintian, installs them by apt in a minimal Debian made for it, and runs there, without a source tree's build:
# the programs of README.md, the demo, C and C++ programs by pkg-config and find_package, and the tests of each language.
#   deb.sh [--keep]     --keep: keep the scratch folder. Takes root
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
repository=$(cd "$here/../.." && pwd)
. "$here/lib/counting.sh"
say() { echo "deb: $*"; }
# shellcheck source=tools/make/minimal_debian.sh
. "$repository/tools/make/minimal_debian.sh"

[ "$(id -u)" = 0 ] || fatal "making a system takes root"
"$repository/tools/make/deps.sh" packages || exit 1
scratch=$(mktemp -d "${TMPDIR:-/var/tmp}/polyverso-deb.XXXXXX")
[ "${1:-}" = --keep ] && say "keeps $scratch" || trap 'rm -rf --one-file-system "$scratch"' EXIT
trap 'exit 130' INT TERM

debs=("$repository"/build/packages/*.deb)
check "lintian finds no error" lintian --allow-root --fail-on error --tag-display-limit 0 "${debs[@]}"

set -e
mkdir "$scratch/root"
make_debian "$scratch/root"
home=$root/root
cp "${debs[@]}" "$home"
# What the tests and examples need of the source tree; no library, no module.
mkdir -p "$home/source/python" "$home/source/perl" "$home/source/lua" "$home/source/tests"
cp -r "$repository"/{README.md,docs,examples,data} "$home/source"
cp -r "$repository/tests/docs" "$repository/tests/install" "$repository"/tests/{forks,ports}.py "$home/source/tests"
cp -r "$repository/python/tests" "$home/source/python"
cp -r "$repository/perl/t" "$home/source/perl"
cp -r "$repository/lua/spec" "$home/source/lua"
mkdir -p "$home/build"
ln -s /usr/lib/x86_64-linux-gnu "$home/build/lib"  # where blocks.py looks for the library
set +e
# The system is thrown away, so nothing needs to be flushed to the disk.
apt="DEBIAN_FRONTEND=noninteractive apt-get -y -q -o DPkg::Lock::Timeout=300 -o Dpkg::Options::=--force-unsafe-io --no-install-recommends"

check "apt has lists" inside "apt-get -q update"
check "Python's package alone brings the library" inside "cd && $apt install ./python3-polyverso_*.deb ./libpolyverso0_*.deb"
check "and works" inside 'cd /tmp && python3 -c "import polyverso; polyverso.init().shutdown()"'
check "it is compiled" inside 'ls /usr/lib/python3/dist-packages/polyverso/__pycache__/table.*.pyc'
check "all packages" inside "cd && $apt install ./*.deb lua5.1 luajit lua5.4 pdl"
check "the command" inside 'cd /tmp && polyverso --version && polyverso doctor'
check "the rules for Prometheus and the dashboard for Grafana" \
  inside 'cd /usr/share/polyverso && ls prometheus/polyverso.rules.yml grafana/polyverso.json'
check "Perl" inside 'cd /tmp && perl -we "use Polyverso; Polyverso->init; Polyverso::mv_shutdown(0)"'
check "AI::MXNet" inside "cd /tmp && perl -we 'use AI::MXNet qw(mx); die unless mx->nd->array([1, 2, 3])->sum->asscalar == 6'"
for lua in lua5.1 luajit lua5.4; do
  check "$lua" inside "cd /tmp && $lua -e 'local mv = require \"polyverso\"; mv.mv_init(); mv.mv_shutdown(0)'"
  check "$lua, torch-ipc's modules" inside "cd /tmp && $lua -e 'require \"polyverso.ipc\"'"
done
check "two processes" inside 'cd /tmp && polyverso run -n 2 --metrics 0 -- python3 -c "
import polyverso
with polyverso.init() as node: assert node.size == 2"'

check "two processes by UCX" inside 'cd /tmp && polyverso run -n 2 --set transport=ucx -- python3 -c "
import polyverso
with polyverso.init() as node: assert [peer[\"transport\"] for peer in node.doctor()[\"peers\"]] == [\"ucx\"]"'

for mpiexec in "openmpi-bin mpirun.openmpi --allow-run-as-root --oversubscribe" "mpich mpiexec.mpich"; do
  check "two processes by ${mpiexec%% *}" inside "$apt install ${mpiexec%% *} && cd /tmp && POLYVERSO_TRANSPORT=mpi ${mpiexec#* } -n 2 python3 -c '
import polyverso
with polyverso.init() as node: assert [peer[\"transport\"] for peer in node.doctor()[\"peers\"]] == [\"mpi\"]'"
done

needed="gcc g++ libc6-dev cmake ninja-build pkg-config python3-matplotlib python3-pytest python3-yaml lua-busted"
check "what programs and tests need" inside "$apt install $needed"
check "C by pkg-config" inside \
  'cd /tmp && cc -std=c99 ~/source/tests/install/consumer/client.c $(pkg-config --cflags --libs polyverso) -o client && ./client'
check "C by find_package" inside 'cd /tmp && cmake -G Ninja -S ~/source/tests/install/consumer -B c && cmake --build c && c/client'
check "C++ by find_package, as two workers" inside \
  'cd /tmp && cmake -G Ninja -S ~/source/examples/cpp -B cpp && cmake --build cpp && polyverso run -n 2 -- cpp/train'
check "C++ by pkg-config" inside \
  'cd /tmp && c++ -std=c++20 ~/source/examples/cpp/train.cpp $(pkg-config --cflags --libs polyverso) -o train && ./train'
check "a C program for Multiverso" inside \
  'cd /tmp && cmake -G Ninja -S ~/source/tests/install/consumer-multiverso -B mv && cmake --build mv && mv/multiverso'
check "the programs of README.md" inside 'cd ~/source && python3 tests/docs/blocks.py README.md ~/build ~/source'
check "the demo" inside 'cd ~/source && python3 examples/digits/demo.py'
check "Python's tests" inside 'cd ~/source/python/tests && PYTHONPATH=~/source/tests python3 -m pytest -q -p no:cacheprovider .'
# Tests of the manuals look for the modules next to the tests; these are the installed ones, without those of other packages.
check "Perl's modules" inside \
  'mkdir ~/source/perl/lib && cd "$(perl -MConfig -e "print \$Config{vendorarchexp}")" && cp -r Polyverso Polyverso.pm ~/source/perl/lib'
check "Perl's tests" inside 'cd ~/source/perl && prove t'
for lua in lua5.1 luajit lua5.4; do
  check "$lua's tests" inside "cd ~/source/lua && $lua \$(command -v busted) spec"
done

check "all are removed" inside "$apt purge '.*polyverso.*'"
check "nothing is left" inside '! find /usr -path /usr/src -prune -o \( -ipath "*polyverso*" -o -ipath "*multiverso*" \) -print | grep .'
result
