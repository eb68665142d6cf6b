#pragma once
// MV_BOTH marks functions that also run on devices. It means something to device compilers (nvcc, hipcc) only.

#if defined(__CUDACC__) || defined(__HIP__)
#define MV_BOTH __host__ __device__
#else
#define MV_BOTH
#endif
