#pragma once
// The errors of the plug-in's functions: a status, and a sentence for the calling thread.

#include <cuda_runtime.h>

#include "device/plugin.h"

namespace mv::device::cuda {

/// Sets the error of the calling thread. A printf format.
[[gnu::format(printf, 2, 3)]] mv_status fail(mv_status status, const char* format, ...);
/// A failed call of CUDA: what failed, and what to do.
mv_status tell(int32_t device, cudaError_t error, const char* what);

}  // namespace mv::device::cuda
