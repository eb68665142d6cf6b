// A plug-in around the emulation that finds work whose order is not certain. The emulation carries everything out at once; on a device, streams
// run at the same time, unless events order them or the host waits. Each stream and the host have a vector clock (Mattern, 1988). Two accesses to
// the same bytes of a device's memory, of which one writes, are a race if neither comes before the other. Memory is written where it is allocated
// and released. Checks copies, and the kernels that the tests of several devices need; graphs are not recorded, so that their items are seen.
//
// ORDERED_PLUGIN names the plug-in to wrap.

#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "device/plugin.h"
#include "device/work.h"
#include "own_memory.hpp"

namespace {

/// What a stream, or the host, comes after: so many steps of each stream.
using Clock = std::map<void*, uint64_t>;
struct Access {
  void* stream;
  uint64_t step;
  std::string what;
};
/// The last accesses to some bytes.
struct Bytes {
  uintptr_t end;
  bool is_written = false;
  Access write = {};
  std::map<void*, Access> reads = {};
};

const mv_device_plugin* plugin;
std::mutex& mutex = *new std::mutex;  // never destroyed, as all that it guards: other threads may still call
std::map<void*, Clock>&streams = *new std::map<void*, Clock>, &events = *new std::map<void*, Clock>;
Clock& host = *new Clock;
std::map<uintptr_t, Bytes>& accessed = *new std::map<uintptr_t, Bytes>;     ///< by the first byte
std::map<uintptr_t, uint64_t>& blocks = *new std::map<uintptr_t, uint64_t>;  ///< the devices' memory, and its bytes
int64_t races = 0, copies_until_failure = -1;

void join(Clock& clock, const Clock& other) {
  for (const auto& [stream, step] : other) clock[stream] = std::max(clock[stream], step);
}
/// The stream's next step, which comes after all that the host has waited for.
Clock& step_of(void* stream) {
  Clock& clock = streams[stream];
  join(clock, host);
  ++clock[stream];
  return clock;
}
void split_at(uintptr_t at) {
  auto next = accessed.upper_bound(at);
  if (next == accessed.begin()) return;
  Bytes& bytes = std::prev(next)->second;
  if (std::prev(next)->first == at || bytes.end <= at) return;
  accessed.emplace(at, bytes);
  bytes.end = at;
}
void report(const Access& earlier, const Access& later) {
  if (races++ < 10)
    std::fprintf(stderr, "order: %s on stream %p and %s on stream %p, in any order\n", earlier.what.c_str(), earlier.stream, later.what.c_str(), later.stream);
}

enum class Use { kReads, kWrites };

/// Requires the mutex, and step_of() before.
void access(void* stream, const void* memory, uint64_t count, Use use, const std::string& what) {
  const auto begin = reinterpret_cast<uintptr_t>(memory), end = begin + count;
  const auto behind = blocks.upper_bound(begin);
  if (count == 0 || behind == blocks.begin() || begin >= std::prev(behind)->first + std::prev(behind)->second) return;  // the host's
  const Clock& clock = streams[stream];
  const auto is_earlier = [&](const Access& other) { return other.stream == stream || (clock.contains(other.stream) && clock.at(other.stream) >= other.step); };
  const Access self{stream, clock.at(stream), what};
  split_at(begin);
  split_at(end);
  for (uintptr_t at = begin; at < end;) {
    auto found = accessed.lower_bound(at);
    if (found == accessed.end() || found->first > at) {
      const uintptr_t to = found == accessed.end() ? end : std::min(end, found->first);
      found = accessed.emplace(at, Bytes{to}).first;
    }
    Bytes& bytes = found->second;
    if (bytes.is_written && !is_earlier(bytes.write)) report(bytes.write, self);
    if (use == Use::kReads) {
      bytes.reads.insert_or_assign(stream, self);
    } else {
      for (const auto& [reader, read] : bytes.reads)
        if (!is_earlier(read)) report(read, self);
      bytes.reads.clear();
      bytes.is_written = true;
      bytes.write = self;
    }
    at = bytes.end;
  }
}

uint64_t bytes_of(mv_dtype dtype, uint64_t count) {
  switch (dtype) {
    case MV_F64:
    case MV_I64: return 8 * count;
    case MV_F32:
    case MV_I32: return 4 * count;
    case MV_F16:
    case MV_BF16: return 2 * count;
    default: return count;
  }
}
void access_of(void* stream, uint32_t kernel, const void* work) {
  switch (kernel) {
    case MV_DEVICE_FILL: {
      const auto& fill = *static_cast<const mv_device_fill*>(work);
      return access(stream, fill.out, bytes_of(fill.dtype, fill.count), Use::kWrites, "a fill");
    }
    case MV_DEVICE_CAST: {
      const auto& cast = *static_cast<const mv_device_cast*>(work);
      access(stream, cast.in, bytes_of(cast.from, cast.count), Use::kReads, "a cast");
      return access(stream, cast.out, bytes_of(cast.to, cast.count), Use::kWrites, "a cast");
    }
    case MV_DEVICE_AXPY: {
      const auto& axpy = *static_cast<const mv_device_axpy*>(work);
      access(stream, axpy.x, bytes_of(axpy.x_dtype, axpy.count), Use::kReads, "an axpy");
      return access(stream, axpy.y, bytes_of(axpy.dtype, axpy.count), Use::kWrites, "an axpy");
    }
    case MV_DEVICE_MERGE: {
      const auto& merge = *static_cast<const mv_device_merge*>(work);
      for (uint64_t i = 0; i < merge.source_count; ++i) access(stream, merge.sources[i], bytes_of(merge.dtype, merge.count), Use::kReads, "a merge");
      return access(stream, merge.dst, bytes_of(merge.dtype, merge.count), Use::kWrites, "a merge");
    }
    default: return;
  }
}

mv_status stream_wait(int32_t device, mv_device_stream stream) {
  const mv_status status = plugin->stream_wait(device, stream);
  const std::lock_guard lock(mutex);
  join(host, streams[stream]);
  return status;
}
mv_status event_record(int32_t device, mv_device_event event, mv_device_stream stream) {
  const std::lock_guard lock(mutex);
  events[event] = step_of(stream);
  return plugin->event_record(device, event, stream);
}
mv_status event_order(int32_t device, mv_device_stream stream, mv_device_event event) {
  const std::lock_guard lock(mutex);
  join(step_of(stream), events[event]);
  return plugin->event_order(device, stream, event);
}
mv_status event_wait(mv_device_event event) {
  const mv_status status = plugin->event_wait(event);
  const std::lock_guard lock(mutex);
  join(host, events[event]);
  return status;
}
mv_status event_free(int32_t device, mv_device_event event) {
  const std::lock_guard lock(mutex);
  events.erase(event);
  return plugin->event_free(device, event);
}
void made(mv_device_stream stream, void* memory, uint64_t bytes) {
  const std::lock_guard lock(mutex);
  step_of(stream);
  blocks[reinterpret_cast<uintptr_t>(memory)] = bytes;
  access(stream, memory, bytes, Use::kWrites, "an allocation");
}
mv_status allocate(int32_t device, mv_device_stream stream, uint64_t bytes, void** memory) {
  const mv_status status = plugin->allocate(device, stream, bytes, memory);
  if (status == MV_OK) made(stream, *memory, bytes);
  return status;
}
mv_status allocate_spilled(int32_t device, mv_device_stream stream, uint64_t bytes, uint64_t* on_device, void** memory) {
  const mv_status status = plugin->allocate_spilled(device, stream, bytes, on_device, memory);
  if (status == MV_OK) made(stream, *memory, bytes);
  return status;
}
mv_status release(int32_t device, mv_device_stream stream, void* memory) {
  {
    const std::lock_guard lock(mutex);
    if (const auto block = blocks.find(reinterpret_cast<uintptr_t>(memory)); block != blocks.end()) {
      step_of(stream);
      access(stream, memory, block->second, Use::kWrites, "a release");
      accessed.erase(accessed.lower_bound(block->first), accessed.lower_bound(block->first + block->second));
      blocks.erase(block);
    }
  }
  return plugin->release(device, stream, memory);
}
mv_status copy(int32_t device, mv_device_stream stream, void* to, const void* from, uint64_t bytes) {
  {
    const std::lock_guard lock(mutex);
    if (copies_until_failure >= 0 && copies_until_failure-- == 0) return MV_ESYSTEM;
    step_of(stream);
    access(stream, from, bytes, Use::kReads, "a copy");
    access(stream, to, bytes, Use::kWrites, "a copy");
  }
  return plugin->copy(device, stream, to, from, bytes);
}
mv_status launch(int32_t device, mv_device_stream stream, uint32_t kernel, const void* work, uint64_t bytes) {
  {
    const std::lock_guard lock(mutex);
    step_of(stream);
    access_of(stream, kernel, work);
  }
  return plugin->launch(device, stream, kernel, work, bytes);
}
mv_status graph_begin(int32_t, mv_device_stream) { return MV_ENOSYS; }

}  // namespace

extern "C" [[gnu::visibility("default")]] const mv_device_plugin* polyverso_device_plugin(uint32_t interface) {
  static mv_device_plugin wrapped;
  void* const library = dlopen(std::getenv("ORDERED_PLUGIN"), RTLD_NOW);
  const auto entry = library != nullptr ? reinterpret_cast<mv_device_entry>(dlsym(library, MV_DEVICE_ENTRY)) : nullptr;
  plugin = entry != nullptr ? entry(interface) : nullptr;
  if (plugin == nullptr) return nullptr;
  wrapped = *plugin;
  wrapped.stream_wait = stream_wait;
  wrapped.event_record = event_record;
  wrapped.event_order = event_order;
  wrapped.event_wait = event_wait;
  wrapped.event_free = event_free;
  wrapped.allocate = allocate;
  wrapped.allocate_spilled = allocate_spilled;
  wrapped.release = release;
  wrapped.copy = copy;
  wrapped.launch = launch;
  wrapped.graph_begin = graph_begin;
  return &wrapped;
}
/// The pairs of accesses in no certain order so far.
extern "C" [[gnu::visibility("default")]] int64_t order_races() {
  const std::lock_guard lock(mutex);
  return races;
}
/// The copy after the next `count` ones fails.
extern "C" [[gnu::visibility("default")]] void order_fail_copy(int64_t count) {
  const std::lock_guard lock(mutex);
  copies_until_failure = count;
}
