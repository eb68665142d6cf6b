#pragma once
// Graphs: work that a program repeats with the same addresses is put on a stream by one call of the plug-in.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <list>
#include <mutex>
#include <optional>
#include <string_view>
#include <type_traits>
#include <vector>

#include "device/device.hpp"

namespace mv::device {

/// Work for a stream, as data that can be compared: copies between memory of devices, and kernels. It is carried out in its order.
class WorkList {
 public:
  /// @param source  the number of the device that has `from`
  void copy(void* to, const void* from, size_t bytes, int32_t source);
  template <typename Work>
  void launch(mv_device_kernel kernel, const Work& work) {
    static_assert(std::is_trivially_copyable_v<Work> && sizeof(Work) % sizeof(uint64_t) == 0);
    append(kernel, &work, sizeof(work));
  }
  /// out[i] = in[i], converted; on the device `number`.
  void cast(mv_dtype to, void* out, mv_dtype from, const void* in, uint64_t count, int32_t number);

  size_t size() const { return size_; }
  std::string_view bytes() const { return {reinterpret_cast<const char*>(words_.data()), words_.size() * sizeof(uint64_t)}; }
  /// Puts the work on the stream.
  base::Status run(const Stream& stream) const;

 private:
  struct Copy {
    void* to;
    const void* from;
    uint64_t bytes;
    int64_t source;
  };
  struct Head {
    uint32_t kind;  ///< a kernel, or kCopy
    uint32_t bytes;
  };
  static constexpr uint32_t kCopy = UINT32_MAX;
  void append(uint32_t kind, const void* work, size_t bytes);

  std::vector<uint64_t> words_;  ///< for each item a Head, and its struct
  size_t size_ = 0;
};

/// The lists of work that were last given for a device, with a graph for each one that was repeated. Any thread.
///
/// A graph may hold addresses of memory that has been freed. It is launched only if its caller gives the same list again, so its addresses are
/// valid then, even if they are those of other tensors. What is in the list decides what its graph does: dtypes, sizes and the devices of
/// copies are there as well. Therefore nothing needs to be told when memory is freed.
class Graphs {
 public:
  static constexpr size_t kShortest = 8;  ///< a shorter list is carried out without a graph
  static constexpr size_t kKept = 16;     ///< lists; the one that was not given for the longest time is dropped

  explicit Graphs(const Device& device) : device_(device) {}
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;
  ~Graphs();

  /// Puts the work on a stream of the device. A list is carried out item by item when it is given for the first time, because kernels may have to
  /// be loaded then, which a recording does not allow. The second time a graph is made of it, and launched from then on. Without a
  /// graph, for whatever reason, the work is carried out item by item.
  base::Status run(const Stream& stream, const WorkList& work);

 private:
  struct Known {
    size_t hash;
    std::vector<char> bytes;
    mv_device_graph graph = nullptr;
    bool is_refused = false;  ///< no graph can be made of it
  };
  bool launch(const Stream& stream, const WorkList& work);
  Known* find(const WorkList& work);
  mv_device_graph record(const WorkList& work);
  void drop(Known& known);

  const Device device_;
  std::mutex mutex_;  ///< guards the members below
  std::optional<Stream> recording_;  ///< other threads use the device's other streams, and what they do there must not be recorded
  std::list<Known> known_;           ///< the last one that was given is first
  bool has_graphs_ = true;
};

}  // namespace mv::device
