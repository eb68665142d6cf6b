#pragma once
// MV_BOTH marks functions that also run on devices. It means something to device compilers (nvcc, hipcc) only.

// MV_UNROLL before a loop of a few constant rounds keeps what it computes in a device's registers.

#if defined(__CUDACC__) || defined(__HIP__)
#define MV_BOTH __host__ __device__
#else
#define MV_BOTH
#endif
#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
#define MV_UNROLL _Pragma("unroll")
#else
#define MV_UNROLL
#endif
