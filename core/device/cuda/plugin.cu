// The plug-in for NVIDIA's devices: memory, copies, streams and events of the CUDA runtime, and the kernels of work.h.
// Links the runtime statically, so that it needs nothing but the driver, and says so where there is none.

#include <cuda_runtime.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <mutex>

#include "device/cuda/blas.hpp"
#include "device/cuda/errors.hpp"
#include "device/cuda/nccl.hpp"
#include "device/dispatch.hpp"

namespace mv::device::cuda {

namespace {

constexpr int kMostDevices = 64;
constexpr uint32_t kThreads = 256;

}  // namespace

mv_status tell(int32_t device, cudaError_t error, const char* what) {
  int driver = 0;
  cudaGetLastError();  // errors that are not sticky are told once
  switch (error) {
    case cudaErrorInsufficientDriver:
    case cudaErrorStubLibrary:
      if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
        return fail(
            MV_ENOSYS,
            "there is no NVIDIA driver on this machine, or the container does not show it: install it (CUDA %d.%d needs it), or use the CPU",
            CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
      return fail(MV_ENOSYS,
                  "the NVIDIA driver is too old: it is for CUDA %d.%d, this plug-in is of CUDA %d.%d; install a newer driver, or build the plug-in "
                  "with an older CUDA",
                  driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    case cudaErrorNoDevice:
      return fail(MV_ENOSYS, "the NVIDIA driver finds no device: look at `nvidia-smi`, and at CUDA_VISIBLE_DEVICES; the CPU still works");
    case cudaErrorInitializationError:
      return fail(
          MV_ENOSYS,
          "%s: CUDA can't be initialized (%s); in a forked child it can't be used at all: begin the child's program anew, as with multiprocessing's "
          "\"spawn\"",
          what, cudaGetErrorString(error));
    case cudaErrorNoKernelImageForDevice:
      return fail(MV_ENOSYS, "%s: the plug-in has no code for this device: its architectures are those of CMake's POLYVERSO_CUDA_ARCHITECTURES", what);
    case cudaErrorMemoryAllocation:
      return fail(MV_ENOMEM, "%s: out of memory; free tensors of cuda:%d, or use smaller ones", what, device);
    case cudaErrorInvalidValue:
    case cudaErrorInvalidDevice:
    case cudaErrorInvalidConfiguration:
    case cudaErrorNotReady:
      return fail(MV_EINVAL, "%s: %s", what, cudaGetErrorString(error));
    default:
      return fail(MV_ESYSTEM,
                  "%s: %s (%s); after such an error the device is lost for this process: save what is on the host, and restart; `compute-sanitizer` "
                  "finds the cause. "
                  "The CPU still works",
                  what, cudaGetErrorString(error), cudaGetErrorName(error));
  }
}

namespace {

/// Makes the device current for the calling thread. The first call for a device sets up its pool, which keeps freed memory,
/// and its peers.
mv_status use(int32_t device) {
  static std::once_flag ready[kMostDevices];
  if (device < 0 || device >= kMostDevices) return fail(MV_EINVAL, "no device has the number %d", device);
  if (const cudaError_t error = cudaSetDevice(device); error != cudaSuccess) return tell(device, error, "cudaSetDevice");
  std::call_once(ready[device], [device] {
    cudaMemPool_t pool = nullptr;
    uint64_t all = UINT64_MAX;
    if (cudaDeviceGetDefaultMemPool(&pool, device) == cudaSuccess) cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all);
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess) devices = 0;
    for (int peer = 0; peer < devices; ++peer) {
      int can = 0;
      if (peer == device || cudaDeviceCanAccessPeer(&can, peer, device) != cudaSuccess || can == 0) continue;
      const cudaMemAccessDesc access = {{cudaMemLocationTypeDevice, peer}, cudaMemAccessFlagsProtReadWrite};
      if (pool != nullptr) cudaMemPoolSetAccess(pool, &access, 1);
    }
    cudaGetLastError();  // without peers, copies go through the host
  });
  return MV_OK;
}

/// use() for the length of a call: afterwards the calling thread has its own current device again, on which other libraries
/// in the process may rely.
class Using {
 public:
  explicit Using(int32_t device) : device_(device) {
    if (cudaGetDevice(&before_) != cudaSuccess) before_ = device;
    status_ = use(device);
  }
  ~Using() {
    if (before_ != device_ && status_ == MV_OK) cudaSetDevice(before_);
  }
  Using(const Using&) = delete;
  Using& operator=(const Using&) = delete;
  mv_status status() const { return status_; }

 private:
  const int device_;
  int before_ = 0;
  mv_status status_ = MV_OK;
};

cudaStream_t of(mv_device_stream stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t of_event(mv_device_event event) { return static_cast<cudaEvent_t>(event); }

/// call() -> cudaError_t, with the device current.
template <typename Call>
mv_status on(int32_t device, const char* what, const Call& call) {
  const Using here(device);
  if (here.status() != MV_OK) return here.status();
  const cudaError_t error = call();
  return error == cudaSuccess ? MV_OK : tell(device, error, what);
}

mv_status count(int32_t* devices) {
  int found = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&found); error != cudaSuccess) return tell(0, error, "cudaGetDeviceCount");
  *devices = found < kMostDevices ? found : kMostDevices;
  return found > 0 ? MV_OK : tell(0, cudaErrorNoDevice, "cudaGetDeviceCount");
}

mv_status describe(int32_t device, mv_device_about* about) {
  cudaDeviceProp properties{};
  int driver = 0;
  size_t unused = 0, all = 0;
  *about = {};
  const mv_status status = on(device, "cudaGetDeviceProperties", [&] {
    cudaDriverGetVersion(&driver);
    const cudaError_t error = cudaGetDeviceProperties(&properties, device);
    return error == cudaSuccess ? cudaMemGetInfo(&unused, &all) : error;
  });
  if (status != MV_OK) return status;
  std::snprintf(about->name, sizeof about->name, "%.95s", properties.name);
  if (cudaDeviceGetPCIBusId(about->bus, sizeof about->bus, device) != cudaSuccess) about->bus[0] = '\0';
  std::snprintf(about->driver, sizeof about->driver, "for CUDA %d.%d", driver / 1000, driver % 1000 / 10);
  std::snprintf(about->runtime, sizeof about->runtime, "CUDA %d.%d", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
  about->memory = all;
  about->unused = unused;
  about->major = properties.major;
  about->minor = properties.minor;
  about->processors = properties.multiProcessorCount;
  return MV_OK;
}

mv_status reaches(int32_t device, int32_t peer, int32_t* reaches) {
  return on(device, "cudaDeviceCanAccessPeer", [&] { return cudaDeviceCanAccessPeer(reaches, device, peer); });
}

mv_status stream_make(int32_t device, mv_device_stream* stream) {
  cudaStream_t made = nullptr;
  const mv_status status = on(device, "cudaStreamCreate", [&] { return cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking); });
  *stream = made;
  return status;
}
mv_status stream_free(int32_t device, mv_device_stream stream) {
  forget_blas(stream);
  return on(device, "cudaStreamDestroy", [&] { return cudaStreamDestroy(of(stream)); });
}
mv_status stream_wait(int32_t device, mv_device_stream stream) {
  return on(device, "cudaStreamSynchronize", [&] { return cudaStreamSynchronize(of(stream)); });
}

mv_status event_make(int32_t device, mv_device_event* event) {
  cudaEvent_t made = nullptr;
  const mv_status status = on(device, "cudaEventCreate", [&] { return cudaEventCreate(&made); });
  *event = made;
  return status;
}
mv_status event_free(int32_t device, mv_device_event event) {
  return on(device, "cudaEventDestroy", [&] { return cudaEventDestroy(of_event(event)); });
}
mv_status event_record(int32_t device, mv_device_event event, mv_device_stream stream) {
  return on(device, "cudaEventRecord", [&] { return cudaEventRecord(of_event(event), of(stream)); });
}
mv_status event_order(int32_t device, mv_device_stream stream, mv_device_event event) {
  return on(device, "cudaStreamWaitEvent", [&] { return cudaStreamWaitEvent(of(stream), of_event(event), 0); });
}
mv_status event_wait(mv_device_event event) {
  const cudaError_t error = cudaEventSynchronize(of_event(event));
  return error == cudaSuccess ? MV_OK : tell(0, error, "cudaEventSynchronize");
}
mv_status event_poll(mv_device_event event, int32_t* done) {
  const cudaError_t error = cudaEventQuery(of_event(event));
  *done = error == cudaSuccess;
  if (error == cudaErrorNotReady) cudaGetLastError();  // it is no failure of the next call
  return error == cudaSuccess || error == cudaErrorNotReady ? MV_OK : tell(0, error, "cudaEventQuery");
}
mv_status event_millis(mv_device_event from, mv_device_event to, double* millis) {
  float measured = 0;
  cudaError_t error = cudaEventSynchronize(of_event(to));
  if (error == cudaSuccess) error = cudaEventElapsedTime(&measured, of_event(from), of_event(to));
  *millis = measured;
  return error == cudaSuccess ? MV_OK : tell(0, error, "cudaEventElapsedTime");
}

mv_status allocate(int32_t device, mv_device_stream stream, uint64_t bytes, void** memory) {
  const Using here(device);
  if (here.status() != MV_OK) return here.status();
  const cudaError_t error = cudaMallocAsync(memory, bytes, of(stream));
  if (error != cudaErrorMemoryAllocation) return error == cudaSuccess ? MV_OK : tell(device, error, "cudaMallocAsync");
  cudaGetLastError();
  size_t unused = 0, all = 0;
  cudaMemGetInfo(&unused, &all);
  return fail(MV_ENOMEM, "%llu MiB asked, %llu of %llu MiB are free on cuda:%d: free tensors, or use smaller ones",
              static_cast<unsigned long long>(bytes >> 20), static_cast<unsigned long long>(unused >> 20), static_cast<unsigned long long>(all >> 20),
              device);
}
mv_status release(int32_t device, mv_device_stream stream, void* memory) {
  return on(device, "cudaFreeAsync", [&] { return cudaFreeAsync(memory, of(stream)); });
}
/// What the pool keeps is counted as unused.
mv_status room(int32_t device, uint64_t* unused, uint64_t* all) {
  size_t free_bytes = 0, all_bytes = 0;
  uint64_t reserved = 0, used = 0;
  const mv_status status = on(device, "cudaMemGetInfo", [&] {
    cudaMemPool_t pool = nullptr;
    cudaError_t error = cudaMemGetInfo(&free_bytes, &all_bytes);
    if (error == cudaSuccess) error = cudaDeviceGetDefaultMemPool(&pool, device);
    if (error == cudaSuccess) error = cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved);
    if (error == cudaSuccess) error = cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used);
    return error;
  });
  *unused = free_bytes + (reserved > used ? reserved - used : 0);
  *all = all_bytes;
  return status;
}
/// Managed memory whose parts stay where they are advised to be, and which the device accesses where it is. The pool gives back what it keeps,
/// because managed memory can't use that.
mv_status allocate_spilled(int32_t device, mv_device_stream stream, uint64_t bytes, uint64_t* on_device, void** memory) {
  const Using here(device);
  if (here.status() != MV_OK) return here.status();
  int can = 0;
  if (const cudaError_t error = cudaDeviceGetAttribute(&can, cudaDevAttrConcurrentManagedAccess, device); error != cudaSuccess)
    return tell(device, error, "cudaDeviceGetAttribute");
  if (can == 0) return fail(MV_ENOSYS, "cuda:%d can't use the host's memory as its own", device);
  uint64_t first = *on_device < bytes ? *on_device : bytes;
  if (first > 0) {
    cudaMemPool_t pool = nullptr;
    size_t unused = 0, all = 0;
    cudaError_t error = cudaStreamSynchronize(of(stream));
    if (error == cudaSuccess) error = cudaDeviceGetDefaultMemPool(&pool, device);
    if (error == cudaSuccess) error = cudaMemPoolTrimTo(pool, 0);
    if (error == cudaSuccess) error = cudaMemGetInfo(&unused, &all);
    if (error != cudaSuccess) return tell(device, error, "cudaMemPoolTrimTo");
    if (first > unused) first = unused;
  }
  void* made = nullptr;
  cudaError_t error = cudaMallocManaged(&made, bytes, cudaMemAttachGlobal);
  if (error != cudaSuccess) return tell(device, error, "cudaMallocManaged");
  cudaMemLocation there{}, host{};
  there.type = cudaMemLocationTypeDevice;
  there.id = device;
  host.type = cudaMemLocationTypeHost;
  error = cudaMemAdvise(made, bytes, cudaMemAdviseSetAccessedBy, there);
  if (error == cudaSuccess && first > 0) error = cudaMemAdvise(made, first, cudaMemAdviseSetPreferredLocation, there);
  if (error == cudaSuccess && first > 0) error = cudaMemPrefetchAsync(made, first, there, 0, of(stream));
  if (error == cudaSuccess && first < bytes)
    error = cudaMemAdvise(static_cast<char*>(made) + first, bytes - first, cudaMemAdviseSetPreferredLocation, host);
  *on_device = first;
  if (error == cudaSuccess) return *memory = made, MV_OK;
  cudaFree(made);
  return tell(device, error, "cudaMemAdvise");
}
mv_status release_spilled(int32_t device, void* memory) {
  return on(device, "cudaFree", [&] { return cudaFree(memory); });
}
mv_status pin(uint64_t bytes, void** memory) {
  const cudaError_t error = cudaHostAlloc(memory, bytes, cudaHostAllocPortable);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return fail(MV_ENOMEM, "the host can't pin %llu MiB: see `ulimit -l`, and the free memory", static_cast<unsigned long long>(bytes >> 20));
  }
  return error == cudaSuccess ? MV_OK : tell(0, error, "cudaHostAlloc");
}
mv_status unpin(void* memory) {
  const cudaError_t error = cudaFreeHost(memory);
  return error == cudaSuccess ? MV_OK : tell(0, error, "cudaFreeHost");
}
/// Managed memory is the host's, too.
mv_status locate(const void* memory, int32_t* device) {
  cudaPointerAttributes known{};
  *device = MV_HOST;
  if (const cudaError_t error = cudaPointerGetAttributes(&known, memory); error != cudaSuccess) return tell(0, error, "cudaPointerGetAttributes");
  if (known.type == cudaMemoryTypeDevice) *device = known.device;
  return MV_OK;
}
/// Unified addressing tells CUDA where the two are.
mv_status copy(int32_t device, mv_device_stream stream, void* to, const void* from, uint64_t bytes) {
  return on(device, "cudaMemcpyAsync", [&] { return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, of(stream)); });
}

/// Blocks of threads that a processor should have room for, which limits a thread's registers. 1: the compiler decides. Found by trying 1, 4, 5, 6
/// and 8 with each kernel on an H200; another number takes up to a third longer.
template <typename Body>
inline constexpr int kBlocks = 1;
template <typename Formula>
inline constexpr int kBlocks<Update<float, Formula>> = Formula::kBatch == 1 ? 5 : 1;
template <>
inline constexpr int kBlocks<Update<float, FormulaADAGRAD>> = 4;
template <uint32_t kBits, typename T>
inline constexpr int kBlocks<Over<EncodeBits<kBits, T>, kTile>> = kBits == 1 ? 5 : 1;
template <bool kAdds, bool kFours>
inline constexpr int kBlocks<Over<DecodeInt8<kAdds, kFours>, kTile>> = kAdds ? 1 : 8;

template <typename Body>
__global__ void __launch_bounds__(kThreads, kBlocks<Body>) run(const __grid_constant__ Body body) {
  body(blockIdx.x, threadIdx.x, kThreads);
}
template <typename Body, uint32_t kStep>
__device__ void run_from(const Body& body, typename Body::Shared& shared) {
  if constexpr (kStep > 0) __syncthreads();
  body.template step<kStep>(blockIdx.x, threadIdx.x, kThreads, shared);
  if constexpr (kStep + 1 < Body::kSteps) run_from<Body, kStep + 1>(body, shared);
}
template <typename Body>
__global__ void __launch_bounds__(kThreads) run_steps(const __grid_constant__ Body body) {
  __shared__ typename Body::Shared shared;
  run_from<Body, 0>(body, shared);
}

mv_status launch(int32_t device, mv_device_stream stream, uint32_t kernel, const void* work, uint64_t bytes) {
  const Using here(device);
  if (here.status() != MV_OK) return here.status();
  bool is_known = false;
  const mv_status status = dispatch(kernel, work, bytes, [&](const auto& body) {
    is_known = true;
    if (body.tiles() > INT32_MAX) return fail(MV_ERANGE, "the array is too long for one launch");
    const auto tiles = static_cast<uint32_t>(body.tiles());
    if constexpr (requires { body.kSteps; })
      run_steps<<<tiles, kThreads, 0, of(stream)>>>(body);
    else
      run<<<tiles, kThreads, 0, of(stream)>>>(body);
    const cudaError_t error = cudaPeekAtLastError();
    return error == cudaSuccess ? MV_OK : tell(device, error, "launch");
  });
  return status == MV_OK || is_known ? status : fail(status, "%s", kUnknownWork);
}

mv_status blas(int32_t device, mv_device_stream stream, const mv_device_blas* work) {
  const Using here(device);
  return here.status() == MV_OK ? run_blas(stream, *work) : here.status();
}

cudaGraphExec_t of_graph(mv_device_graph graph) { return static_cast<cudaGraphExec_t>(graph); }
/// Other threads may allocate meanwhile, which only the default mode would take for an error.
mv_status graph_begin(int32_t device, mv_device_stream stream) {
  return on(device, "cudaStreamBeginCapture", [&] { return cudaStreamBeginCapture(of(stream), cudaStreamCaptureModeThreadLocal); });
}
mv_status graph_end(int32_t device, mv_device_stream stream, mv_device_graph* graph) {
  cudaGraphExec_t made = nullptr;
  *graph = nullptr;
  const mv_status status = on(device, "cudaGraphInstantiate", [&] {
    cudaGraph_t recorded = nullptr;
    cudaError_t error = cudaStreamEndCapture(of(stream), &recorded);
    if (error == cudaSuccess) error = cudaGraphInstantiate(&made, recorded, 0);
    if (recorded != nullptr) cudaGraphDestroy(recorded);
    return error;
  });
  if (status == MV_OK) *graph = made;
  return status;
}
mv_status graph_launch(int32_t device, mv_device_stream stream, mv_device_graph graph) {
  return on(device, "cudaGraphLaunch", [&] { return cudaGraphLaunch(of_graph(graph), of(stream)); });
}
mv_status graph_free(int32_t device, mv_device_graph graph) {
  return on(device, "cudaGraphExecDestroy", [&] { return cudaGraphExecDestroy(of_graph(graph)); });
}

mv_status comm_make(int32_t device, const mv_device_comm_id* id, int32_t ranks, int32_t rank, mv_device_comm* comm) {
  const Using here(device);
  return here.status() == MV_OK ? make_nccl(device, *id, ranks, rank, comm) : here.status();
}
mv_status comm_allreduce(mv_device_comm comm, mv_device_stream stream, const mv_device_part* parts, uint64_t count, int32_t reduction) {
  const Using here(device_of_nccl(comm));
  return here.status() == MV_OK ? allreduce_nccl(comm, stream, parts, count, reduction) : here.status();
}
mv_status comm_poll(mv_device_comm comm, int32_t* done) {
  const Using here(device_of_nccl(comm));
  return here.status() == MV_OK ? poll_nccl(comm, done) : here.status();
}
mv_status comm_free(mv_device_comm comm, int32_t aborts) {
  const Using here(device_of_nccl(comm));
  free_nccl(comm, aborts != 0);
  return MV_OK;
}

thread_local char last_error[512];
const char* error() { return last_error; }

constexpr mv_device_plugin kPlugin = {MV_DEVICE_INTERFACE,
                                      sizeof(mv_device_plugin),
                                      "cuda",
                                      error,
                                      count,
                                      describe,
                                      reaches,
                                      stream_make,
                                      stream_free,
                                      stream_wait,
                                      event_make,
                                      event_free,
                                      event_record,
                                      event_order,
                                      event_wait,
                                      event_poll,
                                      event_millis,
                                      allocate,
                                      release,
                                      pin,
                                      unpin,
                                      locate,
                                      copy,
                                      launch,
                                      blas,
                                      room,
                                      allocate_spilled,
                                      release_spilled,
                                      graph_begin,
                                      graph_end,
                                      graph_launch,
                                      graph_free,
                                      about_nccl,
                                      make_nccl_id,
                                      comm_make,
                                      comm_allreduce,
                                      comm_poll,
                                      comm_free};

}  // namespace

mv_status fail(mv_status status, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(last_error, sizeof last_error, format, arguments);
  va_end(arguments);
  return status;
}

}  // namespace mv::device::cuda

extern "C" __attribute__((visibility("default"))) const mv_device_plugin* polyverso_device_plugin(uint32_t interface) {
  return interface == MV_DEVICE_INTERFACE ? &mv::device::cuda::kPlugin : nullptr;
}
