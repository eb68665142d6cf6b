#pragma once
// cuBLAS, which the plug-in loads when a matrix product needs it: the other kernels work without it.

#include "device/plugin.h"

namespace mv::device::cuda {

/// On the current device.
mv_status run_blas(mv_device_stream stream, const mv_device_blas& work);
/// Frees the stream's handle of cuBLAS, if it has one.
void forget_blas(mv_device_stream stream);

}  // namespace mv::device::cuda
