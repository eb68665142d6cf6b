#!/bin/sh
# Builds libpolyverso_cuda.so, the plug-in for NVIDIA's devices, into build/lib, beside the library. Takes the nvcc of CUDACXX, of PATH or of
# /usr/local/cuda; where there is none, brings NVIDIA's from PyPI into build/cuda-toolkit. No device and no driver is needed to build.
#   cuda.sh [TARGET...]      polyverso_cuda by default
set -eu
cd "$(dirname "$0")/../.."
toolkit=$PWD/build/cuda-toolkit
# The version whose plug-in the drivers of most machines can load; any 12.8 or newer compiles it.
version=13.0

find_nvcc() {
  for nvcc in "${CUDACXX:-}" "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc "$toolkit"/lib/python3*/site-packages/nvidia/cu*/bin/nvcc; do
    if [ -n "$nvcc" ] && "$nvcc" --version >/dev/null 2>&1; then echo "$nvcc"; return; fi
  done
  return 1
}

if ! nvcc=$(find_nvcc); then
  echo "cuda: there is no nvcc on PATH; bringing CUDA $version from PyPI into $toolkit"
  if ! { python3 -m venv "$toolkit" &&
    "$toolkit/bin/pip" install -q --disable-pip-version-check "nvidia-cuda-nvcc==$version.*" "nvidia-cuda-crt==$version.*" "nvidia-nvvm==$version.*" \
      "nvidia-cuda-runtime==$version.*" "nvidia-cuda-cccl==$version.*" "nvidia-cublas==$version.*"; } </dev/null || ! nvcc=$(find_nvcc); then
    rm -rf "$toolkit"
    echo "cuda: PyPI gave none. Install the CUDA Toolkit $version or newer (https://developer.nvidia.com/cuda-downloads), and set CUDACXX to its nvcc" >&2
    exit 1
  fi
fi
echo "cuda: $nvcc, $("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/CUDA \1/p')"
[ $# -gt 0 ] || set -- polyverso_cuda
CUDACXX=$nvcc CMAKE_FLAGS="-DPOLYVERSO_CUDA=ON ${CMAKE_FLAGS:-}" tools/make/tree.sh release "$@"
