// A plug-in whose devices are the processor: the kernels' own bodies, called by one thread. For tests of everything but
// CUDA itself. POLYVERSO_EMULATION makes it fail, as a list of name=number:
//
//   interface=9    the plug-in is of another version
//   driver=0       no driver; driver=1: one that is too old
//   devices=N      so many devices, 2 by default
//   memory=BYTES   of each device
//   allocations=N  allocations of its memory after the first N of the process fail
//   launches=N     the next launch after N fails, and so does every later call: a sticky error
//   blas=0         the library for matrix products is missing
//   comm=0         the library for communicators is missing
//   comm_make=0    communicators can't be made
//   comm_stall=N   the all-reduce of communicators after N of the process never ends
//   comm_fail=N    the one after N fails
//   guard=1        memory of devices can't be accessed but by kernels and copies: a host that does ends with SIGSEGV

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <random>
#include <string_view>
#include <vector>

#include "device/dispatch.hpp"
#include "emulated_comm.hpp"

// A memory of its own: a driver does not fail with the allocations that tests let fail. Bound here by -Bsymbolic.
[[gnu::noinline]] void* operator new(size_t bytes) {
  if (void* const memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace {

using namespace mv::device;

thread_local char last_error[256];

template <typename... Args>
mv_status fail(mv_status status, fmt::string_view format, Args... args) {
  *fmt::format_to_n(last_error, sizeof last_error - 1, fmt::runtime(format), args...).out = '\0';
  return status;
}

/// Of POLYVERSO_EMULATION=name=number,name=number
int64_t setting(std::string_view name, int64_t fallback) {
  const char* const all = std::getenv("POLYVERSO_EMULATION");
  for (std::string_view rest = all != nullptr ? all : ""; !rest.empty(); rest.remove_prefix(std::min(rest.find(',') + 1, rest.size()))) {
    if (rest.starts_with(name) && rest.substr(name.size()).starts_with('=')) return std::atoll(rest.data() + name.size() + 1);
    if (rest.find(',') == std::string_view::npos) break;
  }
  return fallback;
}

/// The memory that is in use, with its size and device: a pointer that is not here is the host's.
struct Block {
  uint64_t bytes;
  int32_t device;
};
std::mutex mutex;
std::map<const char*, Block>& blocks = *new std::map<const char*, Block>;  // never destroyed: other threads may still call

/// Copies from pinned memory of the host that the device has not read yet: it does so at the last moment at which it may.
struct Pending {
  void* to;
  const void* from;
  uint64_t bytes;
};
std::map<const char*, uint64_t>& pinned = *new std::map<const char*, uint64_t>;
std::vector<Pending>& pending = *new std::vector<Pending>;

bool guards() {
  static const bool kGuards = setting("guard", 0) != 0;
  return kGuards;
}
constexpr uint64_t kPage = 4096;
/// Requires the mutex.
void protect(const char* block, uint64_t bytes, int access) { mprotect(const_cast<char*>(block), parts(bytes, kPage) * kPage, access); }
/// Lets the calling thread, and with it all others, access the memory of all devices.
class Access {
 public:
  Access() {
    if (!guards()) return;
    const std::lock_guard lock(mutex);
    if (users++ == 0)
      for (const auto& [at, block] : blocks) protect(at, block.bytes, PROT_READ | PROT_WRITE);
  }
  ~Access() {
    if (!guards()) return;
    const std::lock_guard lock(mutex);
    if (--users == 0)
      for (const auto& [at, block] : blocks) protect(at, block.bytes, PROT_NONE);
  }
  Access(const Access&) = delete;
  Access& operator=(const Access&) = delete;

 private:
  static inline int users = 0;
};
std::atomic<int64_t> launches{0};
std::atomic<uint64_t> crossed{0};
std::atomic<int64_t> allocations{0};

bool is_broken() { return setting("launches", INT64_MAX) < launches; }
mv_status check(int32_t device) {
  if (is_broken()) return fail(MV_ESYSTEM, "an earlier kernel failed, and the device is lost for this process: restart it; the CPU goes on");
  if (device < 0 || device >= setting("devices", 2)) return fail(MV_EINVAL, "no such device");
  return MV_OK;
}

/// Before any other work.
void read_pending() {
  const std::lock_guard lock(mutex);
  for (const Pending& copy : pending) std::memcpy(copy.to, copy.from, copy.bytes);
  pending.clear();
}
bool is_pinned(const void* from) {
  const std::lock_guard lock(mutex);
  auto next = pinned.upper_bound(static_cast<const char*>(from));
  return next != pinned.begin() && from < std::prev(next)->first + std::prev(next)->second;
}

/// Whether the bytes are those of one block of the device.
bool is_of(int32_t device, const void* at, uint64_t bytes) {
  const auto* const begin = static_cast<const char*>(at);
  const std::lock_guard lock(mutex);
  auto next = blocks.upper_bound(begin);
  if (next == blocks.begin()) return false;
  --next;
  return next->second.device == device && begin + bytes <= next->first + next->second.bytes;
}

mv_status count(int32_t* devices) {
  const int64_t driver = setting("driver", 2);
  *devices = static_cast<int32_t>(setting("devices", 2));
  if (driver == 0) return fail(MV_ENOSYS, "there is no driver: install it; the CPU goes on");
  if (driver == 1) return fail(MV_ENOSYS, "the driver is too old: install a newer one; the CPU goes on");
  return *devices > 0 ? MV_OK : fail(MV_ENOSYS, "the driver finds no device; the CPU goes on");
}

mv_status describe(int32_t device, mv_device_about* about) {
  if (const mv_status status = check(device); status != MV_OK) return status;
  *about = {};
  std::snprintf(about->name, sizeof about->name, "emulated device %d", device);
  std::snprintf(about->driver, sizeof about->driver, "1.0");
  std::snprintf(about->runtime, sizeof about->runtime, "1.0");
  about->memory = about->unused = static_cast<uint64_t>(setting("memory", INT64_C(1) << 40));
  const std::lock_guard lock(mutex);
  for (const auto& [at, block] : blocks)
    if (block.device == device) about->unused -= block.bytes;
  about->processors = 1;
  return MV_OK;
}

mv_status reaches(int32_t device, int32_t peer, int32_t* reaches) {
  *reaches = device != peer;
  return check(device);
}

mv_status stream_make(int32_t device, mv_device_stream* stream) {
  if (const mv_status status = check(device); status != MV_OK) return status;
  *stream = new int32_t(device);
  return MV_OK;
}
mv_status stream_free(int32_t, mv_device_stream stream) {
  delete static_cast<int32_t*>(stream);
  return MV_OK;
}
mv_status stream_wait(int32_t device, mv_device_stream) {
  const Access access;
  read_pending();
  return check(device);
}

mv_status event_make(int32_t device, mv_device_event* event) {
  if (const mv_status status = check(device); status != MV_OK) return status;
  *event = new double(0);
  return MV_OK;
}
mv_status event_free(int32_t, mv_device_event event) {
  delete static_cast<double*>(event);
  return MV_OK;
}
mv_status event_record(int32_t device, mv_device_event event, mv_device_stream) {
  *static_cast<double*>(event) = static_cast<double>(launches);
  return check(device);
}
mv_status event_order(int32_t device, mv_device_stream, mv_device_event) { return check(device); }
mv_status event_wait(mv_device_event) {
  const Access access;
  read_pending();
  return MV_OK;
}
/// Each launch takes a millisecond.
mv_status event_millis(mv_device_event from, mv_device_event to, double* millis) {
  *millis = *static_cast<double*>(to) - *static_cast<double*>(from);
  return MV_OK;
}

mv_status allocate(int32_t device, mv_device_stream, uint64_t bytes, void** memory) {
  if (const mv_status status = check(device); status != MV_OK) return status;
  if (++allocations > setting("allocations", INT64_MAX)) return fail(MV_ENOMEM, "no memory from this allocation on");
  mv_device_about about;
  describe(device, &about);
  if (bytes > about.unused)
    return fail(MV_ENOMEM, "{} bytes asked, {} of {} are free: free tensors, or use smaller ones", bytes, about.unused, about.memory);
  const Access access;
  void* const mapped = guards() ? mmap(nullptr, parts(bytes, kPage) * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                                : std::aligned_alloc(256, parts(bytes, 256) * 256);
  if (mapped == nullptr || mapped == MAP_FAILED) return fail(MV_ENOMEM, "the host has no memory to emulate the device's");
  auto* const made = static_cast<char*>(mapped);
  std::memset(made, 0xa5, bytes);  // fresh memory has no zeros
  const std::lock_guard lock(mutex);
  blocks[made] = {bytes, device};
  *memory = made;
  return MV_OK;
}
mv_status release(int32_t, mv_device_stream, void* memory) {
  const Access access;
  read_pending();
  const std::lock_guard lock(mutex);
  const auto known = blocks.find(static_cast<char*>(memory));
  if (known == blocks.end()) return fail(MV_EINVAL, "this is not memory of a device");
  if (guards())
    munmap(memory, parts(known->second.bytes, kPage) * kPage);
  else
    std::free(memory);
  blocks.erase(known);
  return MV_OK;
}
mv_status pin(uint64_t bytes, void** memory) {
  *memory = std::malloc(bytes);
  const std::lock_guard lock(mutex);
  pinned[static_cast<const char*>(*memory)] = bytes;
  return *memory != nullptr ? MV_OK : fail(MV_ENOMEM, "the host has no memory");
}
mv_status unpin(void* memory) {
  const std::lock_guard lock(mutex);
  pinned.erase(static_cast<const char*>(memory));
  std::free(memory);
  return MV_OK;
}
mv_status locate(const void* memory, int32_t* device) {
  if (is_broken()) return fail(MV_ESYSTEM, "an earlier kernel failed");
  const auto* const begin = static_cast<const char*>(memory);
  const std::lock_guard lock(mutex);
  auto next = blocks.upper_bound(begin);
  *device = MV_HOST;
  if (next == blocks.begin()) return MV_OK;
  --next;
  if (begin < next->first + next->second.bytes) *device = next->second.device;
  return MV_OK;
}
mv_status copy(int32_t device, mv_device_stream, void* to, const void* from, uint64_t bytes) {
  if (const mv_status status = check(device); status != MV_OK) return status;
  if (!is_of(device, to, bytes) && !is_of(device, from, bytes)) return fail(MV_EINVAL, "neither side of the copy is memory of the device");
  int32_t places[2];
  locate(to, &places[0]);
  locate(from, &places[1]);
  if (places[0] == MV_HOST || places[1] == MV_HOST) crossed += bytes;
  const Access access;
  read_pending();
  if (is_pinned(from)) {
    const std::lock_guard lock(mutex);
    pending.push_back({to, from, bytes});
    return MV_OK;
  }
  std::memcpy(to, from, bytes);
  return MV_OK;
}

/// The threads of a tile, of which the last one comes first: nothing may depend on their order.
constexpr uint32_t kThreads = 3;

template <uint32_t kStep, typename Body>
void run_from(const Body& body, uint64_t tile, typename Body::Shared& shared) {
  for (uint32_t lane = kThreads; lane-- > 0;) body.template step<kStep>(tile, lane, kThreads, shared);
  if constexpr (kStep + 1 < Body::kSteps) run_from<kStep + 1>(body, tile, shared);
}

mv_status launch(int32_t device, mv_device_stream, uint32_t kernel, const void* work, uint64_t bytes) {
  ++launches;
  if (const mv_status status = check(device); status != MV_OK) return status;
  const Access access;
  read_pending();
  const mv_status status = dispatch(kernel, work, bytes, []<typename Body>(const Body& body) {
    for (uint64_t tile = body.tiles(); tile-- > 0;) {
      if constexpr (requires { Body::kSteps; }) {
        typename Body::Shared shared;
        std::memset(&shared, 0xa5, sizeof shared);
        run_from<0>(body, tile, shared);
      } else {
        for (uint32_t lane = kThreads; lane-- > 0;) body(tile, lane, kThreads);
      }
    }
    return MV_OK;
  });
  return status == MV_OK ? status : fail(status, kUnknownWork);
}

template <typename T, typename Sum>
void multiply(const mv_device_blas& work) {
  const auto at = [](bool transposed, const void* from, uint64_t step, uint64_t row, uint64_t col) {
    return static_cast<Sum>(get(static_cast<const T*>(from), transposed ? row * step + col : col * step + row));
  };
  const bool a_across = work.transpose_a != 0, b_across = work.transpose_b != 0;
  for (uint64_t col = 0; col < work.cols; ++col) {
    for (uint64_t row = 0; row < work.rows; ++row) {
      T* const c = static_cast<T*>(work.c) + col * work.c_step;
      Sum sum = 0;
      if (work.is_sum != 0) {
        sum = static_cast<Sum>(work.alpha) * at(a_across, work.a, work.a_step, row, col) +
              static_cast<Sum>(work.beta) * at(b_across, work.b, work.b_step, row, col);
      } else {
        for (uint64_t k = 0; k < work.inner; ++k) sum += at(a_across, work.a, work.a_step, row, k) * at(b_across, work.b, work.b_step, k, col);
        sum *= static_cast<Sum>(work.alpha);
        if (work.beta != 0) sum += static_cast<Sum>(work.beta) * static_cast<Sum>(get(c, row));
      }
      put(c, row, static_cast<Computed<T>>(sum));
    }
  }
}
mv_status blas(int32_t device, mv_device_stream, const mv_device_blas* work) {
  if (const mv_status status = check(device); status != MV_OK) return status;
  const Access access;
  read_pending();
  if (setting("blas", 1) == 0) return fail(MV_ENOSYS, "the library for matrix products is missing: install it");
  if (work->dtype == MV_F64)
    multiply<double, double>(*work);
  else if (work->dtype == MV_F32)
    multiply<float, float>(*work);
  else if (work->dtype == MV_F16 && work->is_sum == 0)
    multiply<mv::math::Half<MV_F16>, float>(*work);
  else if (work->dtype == MV_BF16 && work->is_sum == 0)
    multiply<mv::math::Half<MV_BF16>, float>(*work);
  else
    return fail(MV_EDTYPE, "matrix products are of floats, sums of f32 and f64");
  return MV_OK;
}

std::atomic<int64_t> reductions{0};

struct EmulatedComm {
  EmulatedComm(int32_t device, const mv_device_comm_id& id, int32_t ranks, int32_t rank) : device(device), comm(id, ranks, rank) {}
  const int32_t device;
  emulation::Comm comm;
  bool fails = false;
};

mv_status need_comms() {
  return setting("comm", 1) != 0 ? MV_OK : fail(MV_ENOSYS, "the library for communicators is missing: install it; until then all-reduces pass through the host's memory");
}
mv_status comm_about(char* text, uint64_t bytes) {
  std::snprintf(text, bytes, "emulated NCCL 1.0");
  return need_comms();
}
mv_status comm_id(mv_device_comm_id* id) {
  std::random_device random;
  for (uint8_t& byte : id->bytes) byte = static_cast<uint8_t>(random());
  return need_comms();
}
mv_status comm_make(int32_t device, const mv_device_comm_id* id, int32_t ranks, int32_t rank, mv_device_comm* comm) {
  if (const mv_status status = check(device); status != MV_OK) return status;
  if (const mv_status status = need_comms(); status != MV_OK) return status;
  if (setting("comm_make", 1) == 0) return fail(MV_ESYSTEM, "a communicator can't be made");
  auto* const made = new EmulatedComm(device, *id, ranks, rank);
  if (!made->comm.is_open()) return delete made, fail(MV_ESYSTEM, "the file of a communicator can't be opened");
  *comm = made;
  return MV_OK;
}
mv_status comm_allreduce(mv_device_comm comm, mv_device_stream, const mv_device_part* parts, uint64_t count, int32_t reduction) {
  EmulatedComm& self = *static_cast<EmulatedComm*>(comm);
  if (const mv_status status = check(self.device); status != MV_OK) return status;
  if (!self.comm.is_idle()) return fail(MV_ESTATE, "an earlier all-reduce is not done");
  for (uint64_t i = 0; i < count; ++i)
    if (parts[i].count > 0 && (!is_of(self.device, parts[i].in, 1) || !is_of(self.device, parts[i].out, 1))) return fail(MV_EINVAL, "an array is not on the device");
  const int64_t before = reductions++;
  self.fails = before == setting("comm_fail", -1);
  const Access access;
  read_pending();
  return self.comm.begin({parts, parts + count}, reduction, before == setting("comm_stall", -1)) ? MV_OK : fail(MV_ESYSTEM, "the values can't be exchanged");
}
mv_status comm_poll(mv_device_comm comm, int32_t* done) {
  EmulatedComm& self = *static_cast<EmulatedComm*>(comm);
  if (const mv_status status = check(self.device); status != MV_OK) return status;
  if (self.fails) return fail(MV_ESYSTEM, "the network failed");
  const Access access;
  *done = self.comm.poll();
  return MV_OK;
}
mv_status comm_free(mv_device_comm comm, int32_t) {
  delete static_cast<EmulatedComm*>(comm);
  return MV_OK;
}

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
                                      event_millis,
                                      allocate,
                                      release,
                                      pin,
                                      unpin,
                                      locate,
                                      copy,
                                      launch,
                                      blas,
                                      comm_about,
                                      comm_id,
                                      comm_make,
                                      comm_allreduce,
                                      comm_poll,
                                      comm_free};

}  // namespace

extern "C" [[gnu::visibility("default")]] const mv_device_plugin* polyverso_device_plugin(uint32_t interface) {
  return interface == setting("interface", MV_DEVICE_INTERFACE) ? &kPlugin : nullptr;
}
/// The bytes that were copied between the host and devices so far.
extern "C" [[gnu::visibility("default")]] uint64_t emulation_crossed() { return crossed; }
/// The number of allocations so far.
extern "C" [[gnu::visibility("default")]] int64_t emulation_allocations() { return allocations; }
/// The all-reduces between devices that were begun so far.
extern "C" [[gnu::visibility("default")]] int64_t emulation_reductions() { return reductions; }
