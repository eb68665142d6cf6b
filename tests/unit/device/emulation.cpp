// A plug-in whose devices are the processor: the kernels' own bodies, called by one thread. For tests of everything but
// CUDA itself. POLYVERSO_EMULATION makes it fail, as a list of name=number:
//
//   interface=9    the plug-in is of another version
//   driver=0       no driver; driver=1: one that is too old
//   devices=N      so many devices, 2 by default
//   memory=BYTES   of each device
//   spill=0        no memory of the host can be used as the device's
//   allocations=N  allocations of its memory after the first N of the process fail
//   launches=N     the next launch after N fails, and so does every later call: a sticky error
//   blas=0         the library for matrix products is missing
//   graphs=0       there are no graphs; graphs=1: they can't be made of what was recorded; graphs=2: they can't be launched
//   recorded=N     while work is recorded for a graph, the work after the first N fails
//   pool=1         memory that is released is used again for the next allocation of its size, as a pool of CUDA does
//   comm=0         the library for communicators is missing
//   comm_make=0    communicators can't be made
//   comm_stall=N   the all-reduce of communicators after N of the process never ends
//   comm_fail=N    the one after N fails
//   hub=1          copies between devices share one connection; without it, each device copies at its own
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
#include <optional>
#include <random>
#include <string_view>
#include <thread>
#include <vector>

#include "device/dispatch.hpp"
#include "emulated_comm.hpp"
#include "own_memory.hpp"

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
  uint64_t on_device;  ///< bytes that are the device's, the others are the host's
};
std::mutex mutex;
std::map<const char*, Block>& blocks = *new std::map<const char*, Block>;  // never destroyed: other threads may still call

/// Copies from pinned memory of the host that the device has not read yet: it does so at the last moment at which it may.
struct Pending {
  void* to;
  const void* from;
  uint64_t bytes;
};
/// Copies to pinned memory of the host, which arrive when something waits for them.
struct Arriving {
  uint64_t number;
  void* to;
  std::vector<char> bytes;
};
std::vector<Arriving>& arriving = *new std::vector<Arriving>;
uint64_t sent = 0;  ///< such copies so far; guarded by the mutex
std::atomic<uint64_t> most_arriving{0};
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
/// Work that is recorded for a graph.
struct Item {
  uint32_t kernel;  ///< or kCopy
  std::vector<char> work;
};
constexpr uint32_t kCopy = UINT32_MAX;
struct Graph {
  int32_t device;
  std::vector<Item> items = {};
  std::thread::id owner = std::this_thread::get_id();
  bool is_spoiled = false;  ///< something happened on the stream that must not be recorded
};
/// What is being recorded, by streams.
std::map<mv_device_stream, Graph>& recordings = *new std::map<mv_device_stream, Graph>;
/// Released memory of devices, by sizes.
std::multimap<uint64_t, char*>& pool = *new std::multimap<uint64_t, char*>;
std::atomic<int64_t> graphs{0}, graph_launches{0}, submitted{0};
std::atomic<int64_t> launches{0};
std::atomic<uint64_t> crossed{0};
std::atomic<int64_t> allocations{0};

/// The time of each device, in milliseconds, and when it has sent everything. A launch takes one, and a copy between devices one for each 64 KiB,
/// in which the one receives and the other one sends nothing else. Guarded by the mutex.
std::map<int32_t, double>&clocks = *new std::map<int32_t, double>, &sent_at = *new std::map<int32_t, double>;
void spend_launch(int32_t device) {
  const std::lock_guard lock(mutex);
  clocks[device] += 1;
}
void spend_copy(int32_t from, int32_t to, uint64_t bytes) {
  const std::lock_guard lock(mutex);
  double& sender = sent_at[setting("hub", 0) != 0 ? MV_HOST : from];
  clocks[to] = sender = std::max(clocks[to], sender) + static_cast<double>(bytes) / 65536;
}

bool is_broken() { return setting("launches", INT64_MAX) < launches; }
mv_status check(int32_t device) {
  if (is_broken()) return fail(MV_ESYSTEM, "an earlier kernel failed, and the device is lost for this process: restart it; the CPU still works");
  if (device < 0 || device >= setting("devices", 2)) return fail(MV_EINVAL, "no such device");
  return MV_OK;
}

/// Before any other work.
void read_pending() {
  const std::lock_guard lock(mutex);
  for (const Pending& copy : pending) std::memcpy(copy.to, copy.from, copy.bytes);
  pending.clear();
}
/// The first `count` of all copies to pinned memory.
void arrive(uint64_t count) {
  const std::lock_guard lock(mutex);
  std::erase_if(arriving, [count](const Arriving& copy) {
    if (copy.number > count) return false;
    std::memcpy(copy.to, copy.bytes.data(), copy.bytes.size());
    return true;
  });
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

/// Records work if the stream does so.
std::optional<mv_status> record(mv_device_stream stream, uint32_t kernel, const void* work, uint64_t bytes) {
  const std::lock_guard lock(mutex);
  const auto found = recordings.find(stream);
  if (found == recordings.end()) return std::nullopt;
  Graph& graph = found->second;
  if (graph.owner != std::this_thread::get_id()) std::abort();  // it would be repeated with each launch of the graph
  if (graph.items.size() >= static_cast<uint64_t>(setting("recorded", INT64_MAX))) return fail(MV_EINVAL, "this work can't be recorded");
  const auto* const begin = static_cast<const char*>(work);
  graph.items.push_back({kernel, {begin, begin + bytes}});
  return MV_OK;
}
/// A call that must not be made on a stream while it records.
mv_status check_idle(mv_device_stream stream) {
  const std::lock_guard lock(mutex);
  const auto found = recordings.find(stream);
  if (found == recordings.end()) return MV_OK;
  found->second.is_spoiled = true;
  return fail(MV_ESYSTEM, "the stream records work for a graph");
}

mv_status count(int32_t* devices) {
  const int64_t driver = setting("driver", 2);
  *devices = static_cast<int32_t>(setting("devices", 2));
  if (driver == 0) return fail(MV_ENOSYS, "there is no driver: install it; the CPU still works");
  if (driver == 1) return fail(MV_ENOSYS, "the driver is too old: install a newer one; the CPU still works");
  return *devices > 0 ? MV_OK : fail(MV_ENOSYS, "the driver finds no device; the CPU still works");
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
    if (block.device == device) about->unused -= block.on_device;
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
mv_status stream_wait(int32_t device, mv_device_stream stream) {
  if (const mv_status status = check_idle(stream); status != MV_OK) return status;
  const Access access;
  read_pending();
  arrive(UINT64_MAX);
  return check(device);
}

struct Event {
  double millis = 0;
  uint64_t sent = 0;
};
mv_status event_make(int32_t device, mv_device_event* event) {
  if (const mv_status status = check(device); status != MV_OK) return status;
  *event = new Event;
  return MV_OK;
}
mv_status event_free(int32_t, mv_device_event event) {
  delete static_cast<Event*>(event);
  return MV_OK;
}
mv_status event_record(int32_t device, mv_device_event event, mv_device_stream stream) {
  if (const mv_status status = check_idle(stream); status != MV_OK) return status;
  const std::lock_guard lock(mutex);
  *static_cast<Event*>(event) = {clocks[device], sent};
  return check(device);
}
mv_status event_order(int32_t device, mv_device_stream stream, mv_device_event event) {
  if (const mv_status status = check_idle(stream); status != MV_OK) return status;
  const std::lock_guard lock(mutex);
  clocks[device] = std::max(clocks[device], static_cast<const Event*>(event)->millis);
  return check(device);
}
mv_status event_wait(mv_device_event event) {
  const Access access;
  read_pending();
  arrive(static_cast<const Event*>(event)->sent);
  return is_broken() ? check(0) : MV_OK;
}
mv_status event_poll(mv_device_event, int32_t* done) {
  *done = 1;
  return MV_OK;
}
mv_status event_millis(mv_device_event from, mv_device_event to, double* millis) {
  *millis = static_cast<const Event*>(to)->millis - static_cast<const Event*>(from)->millis;
  return MV_OK;
}

/// Memory of the pool, or else of the host.
char* map_memory(uint64_t bytes) {
  if (setting("pool", 0) != 0) {
    const std::lock_guard lock(mutex);
    if (const auto found = pool.find(bytes); found != pool.end()) return pool.extract(found).mapped();
  }
  if (!guards()) return static_cast<char*>(std::aligned_alloc(256, parts(bytes, 256) * 256));
  void* const mapped = mmap(nullptr, parts(bytes, kPage) * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return mapped != MAP_FAILED ? static_cast<char*>(mapped) : nullptr;
}
mv_status make_block(int32_t device, uint64_t bytes, uint64_t on_device, void** memory) {
  const Access access;
  char* const made = map_memory(bytes);
  if (made == nullptr) return fail(MV_ENOMEM, "the host has no memory to emulate the device's");
  std::memset(made, 0xa5, bytes);  // fresh memory has no zeros
  const std::lock_guard lock(mutex);
  blocks[made] = {bytes, device, on_device};
  *memory = made;
  return MV_OK;
}
mv_status allocate(int32_t device, mv_device_stream stream, uint64_t bytes, void** memory) {
  if (const mv_status status = check(device); status != MV_OK) return status;
  if (const mv_status status = check_idle(stream); status != MV_OK) return status;
  if (++allocations > setting("allocations", INT64_MAX)) return fail(MV_ENOMEM, "no memory from this allocation on");
  mv_device_about about;
  describe(device, &about);
  if (bytes > about.unused)
    return fail(MV_ENOMEM, "{} bytes asked, {} of {} are free: free tensors, or use smaller ones", bytes, about.unused, about.memory);
  return make_block(device, bytes, bytes, memory);
}
mv_status release(int32_t, mv_device_stream stream, void* memory) {
  if (const mv_status status = check_idle(stream); status != MV_OK) return status;
  const Access access;
  read_pending();
  const std::lock_guard lock(mutex);
  const auto known = blocks.find(static_cast<char*>(memory));
  if (known == blocks.end()) return fail(MV_EINVAL, "this is not memory of a device");
  if (setting("pool", 0) != 0)
    pool.emplace(known->second.bytes, static_cast<char*>(memory));
  else if (guards())
    munmap(memory, parts(known->second.bytes, kPage) * kPage);
  else
    std::free(memory);
  blocks.erase(known);
  return MV_OK;
}
mv_status room(int32_t device, uint64_t* unused, uint64_t* all) {
  mv_device_about about;
  const mv_status status = describe(device, &about);
  *unused = about.unused;
  *all = about.memory;
  return status;
}
mv_status allocate_spilled(int32_t device, mv_device_stream, uint64_t bytes, uint64_t* on_device, void** memory) {
  if (const mv_status status = check(device); status != MV_OK) return status;
  if (setting("spill", 1) == 0) return fail(MV_ENOSYS, "the device can't use the host's memory");
  return make_block(device, bytes, *on_device, memory);
}
mv_status release_spilled(int32_t device, void* memory) { return release(device, nullptr, memory); }
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
mv_status check_copy(int32_t device, const void* to, const void* from, uint64_t bytes) {
  if (is_of(device, to, bytes) || is_of(device, from, bytes)) return MV_OK;
  return fail(MV_EINVAL, "neither side of the copy is memory of the device");
}
void spend_between_devices(const void* to, const void* from, uint64_t bytes) {
  int32_t places[2] = {MV_HOST, MV_HOST};
  locate(to, &places[0]);
  locate(from, &places[1]);
  if (places[0] != places[1] && places[0] != MV_HOST && places[1] != MV_HOST) spend_copy(places[1], places[0], bytes);
}
mv_status copy(int32_t device, mv_device_stream stream, void* to, const void* from, uint64_t bytes) {
  if (const mv_status status = check(device); status != MV_OK) return status;
  if (const mv_status status = check_copy(device, to, from, bytes); status != MV_OK) return status;
  int32_t places[2] = {MV_HOST, MV_HOST};
  locate(to, &places[0]);
  locate(from, &places[1]);
  const bool crosses = places[0] == MV_HOST || places[1] == MV_HOST;
  const mv_status idle = crosses ? check_idle(stream) : MV_OK;
  if (idle != MV_OK) return idle;
  const Pending work{to, from, bytes};
  if (const auto recorded = record(stream, kCopy, &work, sizeof work)) return *recorded;
  ++submitted;
  if (crosses) crossed += bytes;
  spend_between_devices(to, from, bytes);
  const Access access;
  read_pending();
  if (is_pinned(from)) {
    arrive(UINT64_MAX);
    const std::lock_guard lock(mutex);
    pending.push_back(work);
    return MV_OK;
  }
  if (is_pinned(to)) {
    const auto* const begin = static_cast<const char*>(from);
    const std::lock_guard lock(mutex);
    arriving.push_back({++sent, to, {begin, begin + bytes}});
    most_arriving = std::max<uint64_t>(most_arriving, arriving.size());
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

/// @param launches  becomes the number of launches of CUDA's plug-in
mv_status compute(uint32_t kernel, const void* work, uint64_t bytes, int64_t* launches) {
  *launches = 0;
  const mv_status status = dispatch(kernel, work, bytes, [&]<typename Body>(const Body& body) {
    ++*launches;
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
mv_status launch(int32_t device, mv_device_stream stream, uint32_t kernel, const void* work, uint64_t bytes) {
  if (const auto recorded = record(stream, kernel, work, bytes)) return *recorded;
  ++launches;
  spend_launch(device);
  if (const mv_status status = check(device); status != MV_OK) return status;
  const Access access;
  read_pending();
  int64_t made = 0;
  const mv_status status = compute(kernel, work, bytes, &made);
  submitted += made;
  return status;
}

mv_status graph_begin(int32_t device, mv_device_stream stream) {
  if (const mv_status status = check(device); status != MV_OK) return status;
  if (setting("graphs", 9) == 0) return fail(MV_ENOSYS, "this plug-in has no graphs");
  const std::lock_guard lock(mutex);
  if (!recordings.try_emplace(stream, Graph{device}).second) return fail(MV_EINVAL, "the stream is recording already");
  return MV_OK;
}
mv_status graph_end(int32_t device, mv_device_stream stream, mv_device_graph* graph) {
  *graph = nullptr;
  const std::lock_guard lock(mutex);
  const auto found = recordings.find(stream);
  if (found == recordings.end()) return fail(MV_EINVAL, "the stream does not record");
  const Graph recorded = std::move(found->second);
  recordings.erase(found);
  if (recorded.is_spoiled || recorded.device != device) return fail(MV_ESYSTEM, "what was recorded is not valid");
  if (setting("graphs", 9) == 1) return fail(MV_ENOMEM, "no memory for a graph");
  *graph = new Graph(recorded);
  ++graphs;
  return MV_OK;
}
/// One launch, of everything.
mv_status graph_launch(int32_t device, mv_device_stream stream, mv_device_graph graph) {
  const auto& items = static_cast<const Graph*>(graph)->items;
  if (const mv_status status = check_idle(stream); status != MV_OK) return status;
  if (static_cast<const Graph*>(graph)->device != device) return fail(MV_EINVAL, "a graph of another device");
  if (setting("graphs", 9) == 2) return fail(MV_EINVAL, "this graph can't be launched");
  ++submitted;
  ++graph_launches;
  ++launches;
  spend_launch(device);
  if (const mv_status status = check(device); status != MV_OK) return status;
  const Access access;
  read_pending();
  for (const Item& item : items) {
    mv_status status = MV_OK;
    if (item.kernel == kCopy) {
      Pending copy;
      std::memcpy(&copy, item.work.data(), sizeof copy);
      status = check_copy(device, copy.to, copy.from, copy.bytes);
      if (status == MV_OK) std::memcpy(copy.to, copy.from, copy.bytes);
      spend_between_devices(copy.to, copy.from, copy.bytes);
    } else {
      int64_t made = 0;
      status = compute(item.kernel, item.work.data(), item.work.size(), &made);
    }
    if (status != MV_OK) return status;
  }
  return MV_OK;
}
mv_status graph_free(int32_t, mv_device_graph graph) {
  delete static_cast<Graph*>(graph);
  --graphs;
  return MV_OK;
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
/// The most copies to pinned memory that were under way at once.
extern "C" [[gnu::visibility("default")]] uint64_t emulation_most_arriving() { return most_arriving; }
/// The number of allocations so far.
extern "C" [[gnu::visibility("default")]] int64_t emulation_allocations() { return allocations; }
/// How often work was put on a stream: copies, launches of kernels, and launches of graphs.
extern "C" [[gnu::visibility("default")]] int64_t emulation_submitted() { return submitted; }
extern "C" [[gnu::visibility("default")]] int64_t emulation_graph_launches() { return graph_launches; }
/// The graphs that exist.
extern "C" [[gnu::visibility("default")]] int64_t emulation_graphs() { return graphs; }
/// The all-reduces between devices that were begun so far.
extern "C" [[gnu::visibility("default")]] int64_t emulation_reductions() { return reductions; }
