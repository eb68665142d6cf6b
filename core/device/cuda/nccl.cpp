#include "device/cuda/nccl.hpp"

#include <dlfcn.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>

#include "device/cuda/errors.hpp"
#include "device/cuda/library.hpp"

#if __has_include(<nccl.h>)
#include <nccl.h>
#define MV_HAS_NCCL_H 1
#endif

namespace mv::device::cuda {

namespace {

/// The part of NCCL's interface that is used, which has not changed since 2.14. NCCL's own header is not needed; where it
/// is installed, it is compared with this.
namespace nccl {
using Comm = struct Opaque*;
struct Id {
  char bytes[128];
};
enum Result : int { kSuccess = 0, kInvalidArgument = 4, kInvalidUsage = 5, kInProgress = 7 };
enum Type : int { kInt8 = 0, kUint8 = 1, kInt32 = 2, kInt64 = 4, kFloat16 = 6, kFloat32 = 7, kFloat64 = 8, kBfloat16 = 9 };
enum Op : int { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4 };
/// ncclConfig_t of 2.14, which later versions read by its size and version.
struct Config {
  size_t size = sizeof(Config);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 21400;
  int blocking = 0;
};
#ifdef MV_HAS_NCCL_H
static_assert(sizeof(Id) == sizeof(ncclUniqueId) && offsetof(Config, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(kInvalidArgument == int{ncclInvalidArgument} && kInvalidUsage == int{ncclInvalidUsage} && kInProgress == int{ncclInProgress});
static_assert(kInt8 == int{ncclInt8} && kUint8 == int{ncclUint8} && kInt32 == int{ncclInt32} && kInt64 == int{ncclInt64});
static_assert(kFloat16 == int{ncclFloat16} && kFloat32 == int{ncclFloat32} && kFloat64 == int{ncclFloat64} && kBfloat16 == int{ncclBfloat16});
static_assert(kSum == int{ncclSum} && kProd == int{ncclProd} && kMax == int{ncclMax} && kMin == int{ncclMin} && kAvg == int{ncclAvg});
#endif
}  // namespace nccl

constexpr const char* kFile = "libnccl.so.2";
constexpr int kLeastVersion = 21400;  // communicators whose functions do not wait for other ranks
/// How long the end of a communicator waits for other ranks and for the device, before it continues without them.
constexpr auto kTimeToEnd = std::chrono::seconds(1), kTimeToAbort = std::chrono::seconds(5);

struct Library {
  nccl::Result (*version)(int*);
  nccl::Result (*make_id)(nccl::Id*);
  nccl::Result (*make)(nccl::Comm*, int, nccl::Id, int, nccl::Config*);
  nccl::Result (*check)(nccl::Comm, nccl::Result*);
  nccl::Result (*allreduce)(const void*, void*, size_t, nccl::Type, nccl::Op, nccl::Comm, cudaStream_t);
  nccl::Result (*begin)();
  nccl::Result (*end)();
  nccl::Result (*finalize)(nccl::Comm);
  nccl::Result (*destroy)(nccl::Comm);
  nccl::Result (*abort)(nccl::Comm);
  const char* (*text)(nccl::Result);
  const char* (*last_error)(nccl::Comm);
};

/// The library, or why there is none.
struct Loaded {
  Library functions{};
  int version = 0;
  std::string why;
};
const Loaded& library() {
  static const Loaded kLoaded = [] {
    Loaded loaded;
    Library& found = loaded.functions;
    void* const module = dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
    const bool ok = module != nullptr && find(module, "ncclGetVersion", found.version) && find(module, "ncclGetUniqueId", found.make_id) &&
                    find(module, "ncclCommInitRankConfig", found.make) && find(module, "ncclCommGetAsyncError", found.check) &&
                    find(module, "ncclAllReduce", found.allreduce) && find(module, "ncclGroupStart", found.begin) &&
                    find(module, "ncclGroupEnd", found.end) && find(module, "ncclCommFinalize", found.finalize) &&
                    find(module, "ncclCommDestroy", found.destroy) && find(module, "ncclCommAbort", found.abort) &&
                    find(module, "ncclGetErrorString", found.text) && find(module, "ncclGetLastError", found.last_error);
    const char* const why = ok ? nullptr : dlerror();
    if (!ok) return loaded.why = why != nullptr ? why : "a function is missing", loaded;
    if (found.version(&loaded.version) != nccl::kSuccess || loaded.version < kLeastVersion) loaded.why = "it is older than 2.14";
    return loaded;
  }();
  return kLoaded;
}

mv_status need_library() {
  if (library().why.empty()) return MV_OK;
  return fail(MV_ENOSYS, "%s can't be loaded (%s): install NCCL 2.14 or later, and set LD_LIBRARY_PATH to its folder; until then all-reduces pass "
              "through the host's memory", kFile, library().why.c_str());
}

/// One rank's end.
struct Communicator {
  enum class State { kIdle, kMaking, kStarting, kRunning };
  int32_t device;
  nccl::Comm comm = nullptr;
  cudaEvent_t begins = nullptr, reduced = nullptr;
  cudaStream_t stream = nullptr;  ///< its own: kernels of another communicator, and copies, do not wait for its all-reduces
  State state = State::kMaking;
};
Communicator& of(mv_device_comm comm) { return *static_cast<Communicator*>(comm); }

mv_status fail_nccl(const Communicator& comm, nccl::Result result, const char* what) {
  const Library& found = library().functions;
  const char* const more = found.last_error(comm.comm);
  const mv_status status = result == nccl::kInvalidArgument || result == nccl::kInvalidUsage ? MV_EINVAL : MV_ESYSTEM;
  return fail(status, "NCCL: %s: %s%s%.160s; NCCL_DEBUG=WARN in the environment makes it say more", what, found.text(result),
              more != nullptr && more[0] != '\0' ? ": " : "", more != nullptr ? more : "");
}

/// The program may record a CUDA graph in another thread, or in this one: calls that wait for nothing do not disturb that.
class Undisturbing {
 public:
  Undisturbing() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~Undisturbing() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  Undisturbing(const Undisturbing&) = delete;
  Undisturbing& operator=(const Undisturbing&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// The communicator's state: kSuccess, kInProgress, or its error.
nccl::Result state_of(const Communicator& comm) {
  nccl::Result state = nccl::kSuccess;
  const nccl::Result checked = library().functions.check(comm.comm, &state);
  return checked == nccl::kSuccess ? state : checked;
}

bool type_of(mv_dtype dtype, nccl::Type* type) {
  switch (dtype) {
    case MV_F32: return *type = nccl::kFloat32, true;
    case MV_F64: return *type = nccl::kFloat64, true;
    case MV_F16: return *type = nccl::kFloat16, true;
    case MV_BF16: return *type = nccl::kBfloat16, true;
    case MV_I32: return *type = nccl::kInt32, true;
    case MV_I64: return *type = nccl::kInt64, true;
    case MV_U8: return *type = nccl::kUint8, true;
    case MV_I8: return *type = nccl::kInt8, true;
    default: return false;
  }
}

bool op_of(int32_t reduction, nccl::Op* op) {
  switch (reduction) {
    case MV_REDUCE_SUM: return *op = nccl::kSum, true;
    case MV_REDUCE_PROD: return *op = nccl::kProd, true;
    case MV_REDUCE_MIN: return *op = nccl::kMin, true;
    case MV_REDUCE_MAX: return *op = nccl::kMax, true;
    case MV_REDUCE_AVG: return *op = nccl::kAvg, true;
    default: return false;
  }
}

/// Polls until `ready` or until the time is over.
template <typename Ready>
bool poll_until(std::chrono::nanoseconds most, const Ready& ready) {
  const auto until = std::chrono::steady_clock::now() + most;
  while (!ready()) {
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

bool finalize(Communicator& comm) {
  if (comm.state != Communicator::State::kIdle) return false;
  const nccl::Result begun = library().functions.finalize(comm.comm);
  if (begun != nccl::kSuccess && begun != nccl::kInProgress) return false;
  nccl::Result state = nccl::kInProgress;
  return poll_until(kTimeToEnd, [&] { return (state = state_of(comm)) != nccl::kInProgress; }) && state == nccl::kSuccess;
}

}  // namespace

mv_status about_nccl(char* text, uint64_t bytes) {
  if (const mv_status status = need_library(); status != MV_OK) return status;
  const int version = library().version;
  std::snprintf(text, bytes, "NCCL %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
  return MV_OK;
}

mv_status make_nccl_id(mv_device_comm_id* id) {
  if (const mv_status status = need_library(); status != MV_OK) return status;
  nccl::Id made{};
  const nccl::Result result = library().functions.make_id(&made);
  if (result != nccl::kSuccess) return fail_nccl({}, result, "ncclGetUniqueId");
  static_assert(sizeof(made) == sizeof(*id));
  std::memcpy(id, &made, sizeof(made));
  return MV_OK;
}

mv_status make_nccl(int32_t device, const mv_device_comm_id& id, int32_t ranks, int32_t rank, mv_device_comm* comm) {
  if (const mv_status status = need_library(); status != MV_OK) return status;
  nccl::Id known{};
  std::memcpy(&known, &id, sizeof(known));
  auto* const made = new Communicator{device};
  const Undisturbing undisturbing;
  cudaError_t error = cudaEventCreateWithFlags(&made->reduced, cudaEventDisableTiming);
  if (error == cudaSuccess) error = cudaEventCreateWithFlags(&made->begins, cudaEventDisableTiming);
  if (error == cudaSuccess) error = cudaStreamCreateWithFlags(&made->stream, cudaStreamNonBlocking);
  if (error != cudaSuccess) return free_nccl(made, true), tell(device, error, "cudaStreamCreate");
  nccl::Config config;
  const nccl::Result result = library().functions.make(&made->comm, ranks, known, rank, &config);
  if (result == nccl::kSuccess || result == nccl::kInProgress) return *comm = made, MV_OK;
  const mv_status status = fail_nccl(*made, result, "ncclCommInitRankConfig");
  free_nccl(made, true);
  return status;
}

int32_t device_of_nccl(mv_device_comm comm) { return of(comm).device; }

mv_status allreduce_nccl(mv_device_comm comm, mv_device_stream stream, const mv_device_part* parts, uint64_t count, int32_t reduction) {
  Communicator& self = of(comm);
  if (self.state != Communicator::State::kIdle) return fail(MV_ESTATE, "the communicator has an all-reduce that is not done");
  nccl::Op op{};
  nccl::Type type{};
  bool known = op_of(reduction, &op);
  for (uint64_t i = 0; i < count; ++i) known = known && type_of(parts[i].dtype, &type);
  if (!known) return fail(MV_EDTYPE, "NCCL does not reduce this dtype, or not by this reduction");
  const Library& found = library().functions;
  const Undisturbing undisturbing;
  cudaError_t error = cudaEventRecord(self.begins, static_cast<cudaStream_t>(stream));
  if (error == cudaSuccess) error = cudaStreamWaitEvent(self.stream, self.begins, 0);
  if (error != cudaSuccess) return tell(self.device, error, "cudaStreamWaitEvent");
  self.state = Communicator::State::kStarting;
  nccl::Result result = found.begin();
  for (uint64_t i = 0; i < count && (result == nccl::kSuccess || result == nccl::kInProgress); ++i) {
    type_of(parts[i].dtype, &type);
    result = found.allreduce(parts[i].in, parts[i].out, parts[i].count, type, op, self.comm, self.stream);
  }
  const nccl::Result ended = found.end();
  if (result == nccl::kSuccess || result == nccl::kInProgress) result = ended;
  return result == nccl::kSuccess || result == nccl::kInProgress ? MV_OK : fail_nccl(self, result, "ncclAllReduce");
}

mv_status poll_nccl(mv_device_comm comm, int32_t* done) {
  using State = Communicator::State;
  const Undisturbing undisturbing;
  Communicator& self = of(comm);
  *done = 0;
  if (self.state == State::kMaking || self.state == State::kStarting) {
    const nccl::Result result = state_of(self);
    if (result == nccl::kInProgress) return MV_OK;
    if (result != nccl::kSuccess) return fail_nccl(self, result, self.state == State::kMaking ? "ncclCommInitRankConfig" : "ncclAllReduce");
    // Its kernels are on the stream only now.
    const bool reduces = self.state == State::kStarting;
    if (reduces)
      if (const cudaError_t error = cudaEventRecord(self.reduced, self.stream); error != cudaSuccess) return tell(self.device, error, "cudaEventRecord");
    self.state = reduces ? State::kRunning : State::kIdle;
  }
  if (self.state == State::kRunning) {
    const cudaError_t error = cudaEventQuery(self.reduced);
    if (error == cudaErrorNotReady) {
      cudaGetLastError();  // later calls would report it
      const nccl::Result result = state_of(self);
      return result == nccl::kSuccess || result == nccl::kInProgress ? MV_OK : fail_nccl(self, result, "all-reduce");
    }
    if (error != cudaSuccess) return tell(self.device, error, "all-reduce");
    self.state = State::kIdle;
  }
  *done = 1;
  return MV_OK;
}

void free_nccl(mv_device_comm comm, bool aborts) {
  const Undisturbing undisturbing;
  Communicator& self = of(comm);
  if (self.comm != nullptr) {
    const bool used = self.state == Communicator::State::kStarting || self.state == Communicator::State::kRunning;
    if (!aborts && finalize(self))
      library().functions.destroy(self.comm);
    else
      library().functions.abort(self.comm);
    // A kernel that is aborted still ends on its stream, on which there is nothing else. Its arrays are then free.
    if (used && !poll_until(kTimeToAbort, [&] { return cudaStreamQuery(self.stream) != cudaErrorNotReady; })) cudaStreamSynchronize(self.stream);
  }
  if (self.stream != nullptr) cudaStreamDestroy(self.stream);
  for (const cudaEvent_t event : {self.begins, self.reduced})
    if (event != nullptr) cudaEventDestroy(event);
  cudaGetLastError();
  delete &self;
}

}  // namespace mv::device::cuda
