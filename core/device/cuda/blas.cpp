#include "device/cuda/blas.hpp"

#include <cublas_v2.h>
#include <dlfcn.h>

#include <map>
#include <mutex>
#include <string>

#include "device/cuda/errors.hpp"
#include "device/cuda/library.hpp"

namespace mv::device::cuda {

namespace {

/// The functions of cuBLAS that are used.
struct Library {
  decltype(&cublasCreate_v2) create;
  decltype(&cublasDestroy_v2) destroy;
  decltype(&cublasSetStream_v2) set_stream;
  // cublasGemmEx, which C++ overloads
  cublasStatus_t (*gemm)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void*, const void*, cudaDataType, int,
                         const void*, cudaDataType, int, const void*, void*, cudaDataType, int, cublasComputeType_t, cublasGemmAlgo_t);
  decltype(&cublasSgeam) sgeam;
  decltype(&cublasDgeam) dgeam;
  decltype(&cublasGetStatusString) text;
};

#define MV_TEXT_OF(x) #x
#define MV_TEXT(x) MV_TEXT_OF(x)
constexpr const char* kFile = "libcublas.so." MV_TEXT(CUBLAS_VER_MAJOR);

/// The library, or why there is none.
struct Loaded {
  Library functions{};
  std::string why;
};
const Loaded& library() {
  static const Loaded kLoaded = [] {
    Loaded loaded;
    Library& found = loaded.functions;
    void* const module = dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
    const bool ok = module != nullptr && find(module, "cublasCreate_v2", found.create) && find(module, "cublasDestroy_v2", found.destroy) &&
                    find(module, "cublasSetStream_v2", found.set_stream) && find(module, "cublasGemmEx", found.gemm) &&
                    find(module, "cublasSgeam", found.sgeam) && find(module, "cublasDgeam", found.dgeam) &&
                    find(module, "cublasGetStatusString", found.text);
    if (ok) return loaded;
    const char* const why = dlerror();
    loaded.why = why != nullptr ? why : "a function is missing";
    return loaded;
  }();
  return kLoaded;
}

std::mutex mutex;
std::map<mv_device_stream, cublasHandle_t> handles;  // cuBLAS gives equal bits run after run for one handle on one stream

cublasStatus_t handle_of(const Library& blas, mv_device_stream stream, cublasHandle_t* handle) {
  const std::lock_guard lock(mutex);
  cublasHandle_t& known = handles[stream];
  if (known == nullptr) {
    const cublasStatus_t status = blas.create(&known);
    if (status != CUBLAS_STATUS_SUCCESS) return known = nullptr, status;
    if (const cublasStatus_t set = blas.set_stream(known, static_cast<cudaStream_t>(stream)); set != CUBLAS_STATUS_SUCCESS) return set;
  }
  *handle = known;
  return CUBLAS_STATUS_SUCCESS;
}

cudaDataType_t type_of(mv_dtype dtype) {
  return dtype == MV_F64 ? CUDA_R_64F : dtype == MV_F16 ? CUDA_R_16F : dtype == MV_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

template <typename T>
struct Factors {
  T alpha, beta;
};
template <typename T>
Factors<T> factors_of(const mv_device_blas& work) {
  return {static_cast<T>(work.alpha), static_cast<T>(work.beta)};
}

}  // namespace

mv_status run_blas(mv_device_stream stream, const mv_device_blas& work) {
  const bool is_float = work.dtype == MV_F32 || work.dtype == MV_F64, is_half = work.dtype == MV_F16 || work.dtype == MV_BF16;
  if (!is_float && (!is_half || work.is_sum != 0)) return fail(MV_EDTYPE, "matrix products are of floats, sums of f32 and f64");
  for (const uint64_t size : {work.rows, work.cols, work.inner, work.a_step, work.b_step, work.c_step})
    if (size > INT32_MAX) return fail(MV_ERANGE, "a matrix is too large: no dimension may exceed 2^31 - 1");
  if (!library().why.empty())
    return fail(MV_ENOSYS,
                "%s can't be loaded (%s): install cuBLAS, and set LD_LIBRARY_PATH to its folder; everything but matrix products works without", kFile,
                library().why.c_str());
  if (work.rows == 0 || work.cols == 0) return MV_OK;
  const Library* const blas = &library().functions;
  cublasHandle_t handle = nullptr;
  cublasStatus_t status = handle_of(*blas, stream, &handle);
  const cublasOperation_t of_a = work.transpose_a != 0 ? CUBLAS_OP_T : CUBLAS_OP_N, of_b = work.transpose_b != 0 ? CUBLAS_OP_T : CUBLAS_OP_N;
  const int rows = static_cast<int>(work.rows), cols = static_cast<int>(work.cols), inner = static_cast<int>(work.inner);
  const int a_step = static_cast<int>(work.a_step), b_step = static_cast<int>(work.b_step), c_step = static_cast<int>(work.c_step);
  const auto singles = factors_of<float>(work);
  const auto doubles = factors_of<double>(work);
  const bool is_double = work.dtype == MV_F64;
  if (status == CUBLAS_STATUS_SUCCESS) {
    if (work.is_sum == 0) {
      const auto type = type_of(work.dtype);
      const void* const alpha = is_double ? static_cast<const void*>(&doubles.alpha) : &singles.alpha;
      const void* const beta = is_double ? static_cast<const void*>(&doubles.beta) : &singles.beta;
      // Plain f32, not TF32: products keep their 24 bits.
      status = blas->gemm(handle, of_a, of_b, rows, cols, inner, alpha, work.a, type, a_step, work.b, type, b_step, beta, work.c, type, c_step,
                          is_double ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    } else if (is_double) {
      status = blas->dgeam(handle, of_a, of_b, rows, cols, &doubles.alpha, static_cast<const double*>(work.a), a_step, &doubles.beta,
                           static_cast<const double*>(work.b), b_step, static_cast<double*>(work.c), c_step);
    } else {
      status = blas->sgeam(handle, of_a, of_b, rows, cols, &singles.alpha, static_cast<const float*>(work.a), a_step, &singles.beta,
                           static_cast<const float*>(work.b), b_step, static_cast<float*>(work.c), c_step);
    }
  }
  if (status == CUBLAS_STATUS_SUCCESS) return MV_OK;
  const mv_status told = status == CUBLAS_STATUS_ALLOC_FAILED ? MV_ENOMEM : status == CUBLAS_STATUS_INVALID_VALUE ? MV_EINVAL : MV_ESYSTEM;
  return fail(told, "cuBLAS: %s", blas->text(status));
}

void forget_blas(mv_device_stream stream) {
  const std::lock_guard lock(mutex);
  const auto known = handles.find(stream);
  if (known == handles.end()) return;
  if (known->second != nullptr) library().functions.destroy(known->second);
  handles.erase(known);
}

}  // namespace mv::device::cuda
