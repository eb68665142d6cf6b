#pragma once
// Devices: plug-ins, and what the library makes with their tables. Every failure is a Status that names what to do; the
// processor's side of the library never depends on a device.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/result.hpp"
#include "device/plugin.h"
#include "device/work.h"

namespace mv::device {

/// The environment variable with the path of a plug-in.
inline constexpr const char* kPluginVariable = "POLYVERSO_DEVICE_PLUGIN";
inline constexpr const char* kPluginFile = "libpolyverso_cuda.so";

using Plugin = const mv_device_plugin*;

/// Loads the plug-in at `path`, which stays loaded; "": the one beside the library. MV_ENOSYS if it is missing, if it needs
/// a library that is missing, or if its interface is of another version.
base::Result<Plugin> load_plugin(const std::string& path);
/// The plug-in of this process, loaded by the first call: kPluginVariable, or the one beside the library. MV_EFORK in a
/// forked child whose parent has loaded it.
base::Result<Plugin> the_plugin();
/// Whether there is one, without loading it.
bool has_plugin();

/// One device. Copies are the same device. In a forked child, whose parent's devices it can't use, every call of a device
/// that the parent opened fails with MV_EFORK.
class Device {
 public:
  /// Checks that the plug-in has this device: MV_ENOSYS if it has none, MV_ENOTFOUND for another number.
  static base::Result<Device> open(Plugin plugin, int32_t number);

  const mv_device_plugin& plugin() const;
  int32_t number() const { return number_; }
  /// "cuda:0"
  std::string name() const;
  /// The error of a failed call of the plug-in; ok() if it has not failed.
  base::Status check(mv_status status, const char* what) const;
  base::Result<mv_device_about> describe() const;

  bool operator==(const Device&) const = default;

 private:
  Device(Plugin plugin, int32_t number);
  Plugin plugin_;
  int32_t number_;
  uint32_t opened_at_;  ///< SharedMemory::forks() at that time
};

class Stream;
class WorkList;

/// A place in the work of a stream.
class Event {
 public:
  static base::Result<Event> make(const Device& device);
  Event(Event&& other) noexcept : device_(other.device_), handle_(std::exchange(other.handle_, nullptr)) {}
  Event& operator=(Event&& other) noexcept;
  ~Event();

  /// After the work that the stream has so far.
  base::Status record(const Stream& stream) const;
  /// Waits for the work before it, and returns its errors.
  base::Status wait() const;
  /// Lets later work of a stream, which may be another device's, begin after it.
  base::Status order(const Stream& after) const;
  /// The time from another event of the device to this one. Nothing while the work before this one is running, or if it has failed.
  std::optional<double> millis_if_done(const Event& from) const;

 private:
  Event(const Device& device, mv_device_event handle) : device_(device), handle_(handle) {}
  Device device_;
  mv_device_event handle_;
};

/// Pinned memory of the host, through which small copies go to a device. A copy from other memory would wait for all work on its stream. Any
/// thread.
class Staging {
 public:
  static constexpr size_t kSlots = 4, kSlotBytes = 512 << 10;

  explicit Staging(const Device& device) : device_(device) {}
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging();
  /// At most kSlotBytes. False: nothing was copied.
  bool copy(const Stream& stream, void* to, const void* from, size_t bytes);

 private:
  struct Slot {
    void* memory = nullptr;
    mv_device_event copied = nullptr;
    bool is_used = false;
  };
  Device device_;
  std::mutex mutex_;  ///< guards the members below
  std::array<Slot, kSlots> slots_;
  size_t next_ = 0;
};

/// A stream of a device: its work is done in order. One thread at a time.
class Stream {
 public:
  static base::Result<Stream> make(const Device& device);
  /// The caller's own stream, which is not freed.
  static Stream borrow(const Device& device, mv_device_stream handle) { return Stream(device, handle, false, std::make_unique<Staging>(device)); }
  Stream(Stream&& other) noexcept
      : device_(other.device_),
        handle_(std::exchange(other.handle_, nullptr)),
        is_own_(other.is_own_),
        staging_(std::move(other.staging_)) {}
  Stream& operator=(Stream&&) = delete;
  ~Stream();

  const Device& device() const { return device_; }
  mv_device_stream handle() const { return handle_; }

  base::Status copy(void* to, const void* from, size_t bytes) const;
  /// Copies from memory of the host, which may be used again on return. Does not wait for the stream if `bytes` are few.
  base::Status copy_staged(void* to, const void* from, size_t bytes) const;
  /// Waits for the work, and returns its errors.
  base::Status wait() const;
  template <typename Work>
  base::Status launch(mv_device_kernel kernel, const Work& work) const {
    return launch(kernel, &work, sizeof(work));
  }
  /// Works that are independent of each other, of which a launch may compute several.
  template <typename Work>
  base::Status launch_all(mv_device_kernel kernel, std::span<const Work> works) const {
    return works.empty() ? base::Status() : launch(kernel, works.data(), works.size_bytes());
  }
  base::Status blas(const mv_device_blas& work) const;
  /// Lets later work of `after`, a stream of any device, begin after all work so far on this one.
  base::Status order(const Stream& after) const;

 private:
  Stream(const Device& device, mv_device_stream handle, bool is_own, std::unique_ptr<Staging> staging)
      : device_(device), handle_(handle), is_own_(is_own), staging_(std::move(staging)) {}
  friend WorkList;
  base::Status launch(mv_device_kernel kernel, const void* work, size_t bytes) const;
  Device device_;
  mv_device_stream handle_;
  bool is_own_;
  std::unique_ptr<Staging> staging_;
};

/// Memory of a device, in the order of a stream, which must outlive it.
class Memory {
 public:
  Memory() = default;  ///< none
  static base::Result<Memory> make(const Stream& stream, size_t bytes);
  /// A copy of the host's bytes.
  static base::Result<Memory> of(const Stream& stream, const void* from, size_t bytes);
  Memory(Memory&& other) noexcept : stream_(other.stream_), data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  Memory& operator=(Memory&& other) noexcept;
  ~Memory();

  size_t bytes() const { return bytes_; }
  template <typename T = void>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  Memory(const Stream& stream, void* data, size_t bytes) : stream_(&stream), data_(data), bytes_(bytes) {}
  const Stream* stream_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace mv::device
