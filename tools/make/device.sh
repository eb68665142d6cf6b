#!/bin/sh
# Tests or measures the plug-in for NVIDIA's devices on this machine's device. Where there is none, it leaves a folder that does so on a machine
# with nothing but a driver.
#   device.sh test|bench
set -eu
cd "$(dirname "$0")/../.."
what=$1
tests="unit_device_test unit_device_comm_test unit_device_graphs_test unit_device_shard_test unit_device_paths_test unit_device_keyed_test unit_device_tensors_test
unit_device_strategies_test"
# shellcheck disable=SC2086 # several names
tools/make/cuda.sh polyverso_cuda $tests device_emulation bench_device

# Everything that the programs load, except the C library and what belongs to the driver.
tree=build/cuda-tree
rm -rf "$tree"
mkdir -p "$tree/lib"
cp build/lib/libpolyverso_cuda.so bench/device/beside_torch.py "$tree/"
for program in $tests bench_device; do cp "build/bin/$program" "$tree/"; done
for program in $tests bench_device; do ldd "build/bin/$program"; done | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | sort -u |
  grep -v -E '/(libc|libm|libdl|librt|libpthread|ld-linux[^/]*)\.so' | while read -r library; do cp -L "$library" "$tree/lib/"; done
nvcc=$(sed -n 's/^NVCC:FILEPATH=//p' build/CMakeCache.txt)
toolkit=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
cat >"$tree/run" <<'END'
#!/bin/sh
# run test|bench [ARGUMENT...]: on the device of this machine. LD_LIBRARY_PATH may name the folders of cuBLAS and NCCL, without which matrix
# products and communicators are skipped.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" POLYVERSO_DEVICE_PLUGIN="$here/libpolyverso_cuda.so"
case ${1:-test} in
  test)
    status=0
    for test in "$here"/unit_device_*test; do ${SANITIZER:-} "$test" || status=$?; done
    exit $status
    ;;
  bench)
    shift
    status=0
    rows=$(mktemp)
    trap 'rm -f "$rows"' EXIT
    "$here/bench_device" "$@" >"$rows" || status=$?
    cat "$rows"
    if python3 -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
      python3 "$here/beside_torch.py" "$rows" "$@" || status=$?
    fi
    exit $status
    ;;
  *) echo "usage: run test|bench [MIB]" >&2; exit 2 ;;
esac
END
chmod +x "$tree/run"

if [ ! -e /dev/nvidia0 ] && [ ! -e /dev/dxg ]; then
  echo "$what-cuda: this machine has no NVIDIA device. Carry $tree ($(du -sh "$tree" | cut -f1)) to one that has, and type there: ./run $what"
  exit 0
fi
LD_LIBRARY_PATH="$toolkit/lib64:$toolkit/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" exec "$tree/run" "$what"
