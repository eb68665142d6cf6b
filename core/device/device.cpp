#include "device/device.hpp"

#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "base/module_file.hpp"
#include "base/shared_memory.hpp"

namespace mv::device {

namespace {

constexpr const char* kForked =
    "a forked child can't use its parent's devices: begin a new program in the child, as multiprocessing's \"spawn\" does, or fork before the "
    "first use of a device; the CPU still works";

/// The table of every plug-in in a forked child: a driver that its parent has initialized may crash or hang there.
template <typename... Arguments>
mv_status refuse(Arguments...) {
  return MV_EFORK;
}
const char* refusal() { return kForked; }
constexpr mv_device_plugin kRefusing = {MV_DEVICE_INTERFACE, sizeof(mv_device_plugin), "cuda", refusal, refuse, refuse, refuse, refuse, refuse,
                                        refuse, refuse, refuse, refuse, refuse, refuse, refuse, refuse, refuse, refuse, refuse, refuse, refuse,
                                        refuse, refuse, refuse, refuse, refuse, refuse, refuse, refuse, refuse, refuse, refuse, refuse, refuse,
                                        refuse, refuse, refuse};

}  // namespace

base::Result<Plugin> load_plugin(const std::string& path) {
  const auto entry = base::load_from_plugin(path, kPluginFile, MV_DEVICE_ENTRY, "devices");
  if (!entry.ok())
    return base::error(
        MV_ENOSYS,
        "there are no devices in this process: {}; build the plug-in with `make cuda`, and name its file in {} unless it is beside the "
        "library ({})",
        path.empty() ? "the plug-in is missing" : "the plug-in does not work", kPluginVariable, entry.status().text());
  return base::check_plugin(reinterpret_cast<mv_device_entry>(entry.value())(MV_DEVICE_INTERFACE), MV_DEVICE_INTERFACE, path.empty() ? kPluginFile : path);
}

base::Result<Plugin> the_plugin() {
  static const base::Result<Plugin> kPlugin = [] {
    const char* const given = std::getenv(kPluginVariable);
    return load_plugin(given != nullptr ? given : "");
  }();
  static const uint32_t kLoadedAt = base::SharedMemory::forks();
  if (kPlugin.ok() && !base::SharedMemory::is_ours(kLoadedAt)) return base::Status(MV_EFORK, kForked);
  return kPlugin;
}

bool has_plugin() {
  const char* const given = std::getenv(kPluginVariable);
  return given != nullptr && given[0] != '\0' ? access(given, R_OK) == 0 : base::is_beside(kPluginFile);
}

Device::Device(Plugin plugin, int32_t number) : plugin_(plugin), number_(number), opened_at_(base::SharedMemory::forks()) {}

const mv_device_plugin& Device::plugin() const { return base::SharedMemory::is_ours(opened_at_) ? *plugin_ : kRefusing; }

base::Result<Device> Device::open(Plugin plugin, int32_t number) {
  int32_t devices = 0;
  if (const mv_status status = plugin->count(&devices); status != MV_OK) return base::Status(status, plugin->error());
  if (number >= 0 && number < devices) return Device(plugin, number);
  return base::error(MV_ENOTFOUND, "there is no {}:{}: this process has {} of its devices, {}:0 to {}:{}", plugin->name, number, devices,
                     plugin->name, plugin->name, devices - 1);
}

std::string Device::name() const { return fmt::format("{}:{}", plugin_->name, number_); }

base::Status Device::check(mv_status status, const char* what) const {
  return status == MV_OK ? base::Status() : base::error(status, "{}: {}: {}", name(), what, plugin().error());
}

base::Result<mv_device_about> Device::describe() const {
  mv_device_about about{};
  if (auto status = check(plugin().describe(number_, &about), "describe"); !status.ok()) return status;
  return about;
}

base::Result<Event> Event::make(const Device& device) {
  mv_device_event handle = nullptr;
  if (auto status = device.check(device.plugin().event_make(device.number(), &handle), "make an event"); !status.ok()) return status;
  return Event(device, handle);
}

Event& Event::operator=(Event&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(handle_, other.handle_);
  return *this;
}

Event::~Event() {
  if (handle_ != nullptr) device_.plugin().event_free(device_.number(), handle_);
}

base::Status Event::record(const Stream& stream) const {
  return device_.check(device_.plugin().event_record(device_.number(), handle_, stream.handle()), "record an event");
}

base::Status Event::wait() const { return device_.check(device_.plugin().event_wait(handle_), "wait for an event"); }

base::Status Event::order(const Stream& after) const {
  const Device& device = after.device();
  return device.check(device.plugin().event_order(device.number(), after.handle(), handle_), "wait for an event");
}

std::optional<double> Event::millis_if_done(const Event& from) const {
  int32_t done = 0;
  double millis = 0;
  const mv_device_plugin& plugin = device_.plugin();
  if (plugin.event_poll(handle_, &done) != MV_OK || done == 0) return {};
  return plugin.event_millis(from.handle_, handle_, &millis) == MV_OK ? std::optional(millis) : std::nullopt;
}

bool Staging::copy(const Stream& stream, void* to, const void* from, size_t bytes) {
  if (bytes > kSlotBytes) return false;
  const mv_device_plugin& plugin = device_.plugin();
  const std::lock_guard lock(mutex_);
  Slot& slot = slots_[next_];
  if (slot.memory == nullptr && plugin.pin(kSlotBytes, &slot.memory) != MV_OK) return false;
  if (slot.copied == nullptr && plugin.event_make(device_.number(), &slot.copied) != MV_OK) return false;
  if (slot.is_used && plugin.event_wait(slot.copied) != MV_OK) return false;
  std::memcpy(slot.memory, from, bytes);
  if (plugin.copy(device_.number(), stream.handle(), to, slot.memory, bytes) != MV_OK) return false;
  slot.is_used = plugin.event_record(device_.number(), slot.copied, stream.handle()) == MV_OK;
  if (!slot.is_used) plugin.stream_wait(device_.number(), stream.handle());
  next_ = (next_ + 1) % kSlots;
  return true;
}

Staging::~Staging() {
  const mv_device_plugin& plugin = device_.plugin();
  for (Slot& slot : slots_) {
    if (slot.is_used) plugin.event_wait(slot.copied);
    if (slot.copied != nullptr) plugin.event_free(device_.number(), slot.copied);
    if (slot.memory != nullptr) plugin.unpin(slot.memory);
  }
}

base::Result<Stream> Stream::make(const Device& device) {
  auto staging = std::make_unique<Staging>(device);  // first: without memory for it, no stream must be freed
  mv_device_stream handle = nullptr;
  if (auto status = device.check(device.plugin().stream_make(device.number(), &handle), "make a stream"); !status.ok()) return status;
  return Stream(device, handle, true, std::move(staging));
}

Stream::~Stream() {
  staging_.reset();
  if (handle_ != nullptr && is_own_) device_.plugin().stream_free(device_.number(), handle_);
}

base::Status Stream::copy(void* to, const void* from, size_t bytes) const {
  if (bytes == 0) return {};
  return device_.check(device_.plugin().copy(device_.number(), handle_, to, from, bytes), "copy");
}

base::Status Stream::copy_staged(void* to, const void* from, size_t bytes) const {
  if (bytes == 0) return {};
  if (staging_->copy(*this, to, from, bytes)) return {};
  if (auto status = copy(to, from, bytes); !status.ok()) return status;
  return wait();  // the caller's memory may be pinned: then only the stream tells when it was read
}

base::Status Stream::wait() const { return device_.check(device_.plugin().stream_wait(device_.number(), handle_), "wait"); }

base::Status Stream::order(const Stream& after) const {
  if (after.handle_ == handle_ && after.device_ == device_) return {};
  const auto event = Event::make(device_);
  if (!event.ok()) return event.status();
  const auto status = event.value().record(*this);
  return status.ok() ? event.value().order(after) : status;  // what waits for the event keeps waiting
}

base::Status Stream::launch(mv_device_kernel kernel, const void* work, size_t bytes) const {
  constexpr const char* kNames[] = {
#define XX(number, name) #name,
      MV_DEVICE_KERNELS(XX)
#undef XX
  };
  return device_.check(device_.plugin().launch(device_.number(), handle_, kernel, work, bytes), kNames[kernel]);
}

base::Status Stream::blas(const mv_device_blas& work) const {
  return device_.check(device_.plugin().blas(device_.number(), handle_, &work), work.is_sum != 0 ? "geam" : "gemm");
}

base::Result<Memory> Memory::make(const Stream& stream, size_t bytes) {
  const Device& device = stream.device();
  void* data = nullptr;
  if (bytes > 0)
    if (auto status = device.check(device.plugin().allocate(device.number(), stream.handle(), bytes, &data), "allocate"); !status.ok()) return status;
  return Memory(stream, data, bytes);
}

base::Result<Memory> Memory::of(const Stream& stream, const void* from, size_t bytes) {
  auto made = make(stream, bytes);
  if (!made.ok()) return made;
  if (auto status = stream.copy_staged(made.value().as(), from, bytes); !status.ok()) return status;
  return made;
}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(stream_, other.stream_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Memory::~Memory() {
  if (data_ == nullptr) return;
  const Device& device = stream_->device();
  device.plugin().release(device.number(), stream_->handle(), data_);
}

}  // namespace mv::device
