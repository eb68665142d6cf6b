#pragma once
// Mapping: a table's segments on servers whose memory this process can read: on this machine, or by a network that reads remote
// memory. Gets copy values straight from them, without a message.

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/table/client/operation.hpp"
#include "runtime/runtime.hpp"
#include "shard/segment.hpp"
#include "transport/fabric/remote_memory.hpp"

namespace mv::api {

/// The segments that one handle reads. It asks for a server's segment when it is created, and again at some of the
/// gets that find none. It drops a segment when the server's memory is no longer reachable, or when the server has
/// destroyed the table, and unmaps it once no thread reads it.
class Mapping : public std::enable_shared_from_this<Mapping> {
 public:
  /// @param own   a server whose part needs no mapping, or SIZE_MAX
  Mapping(runtime::Runtime& runtime, table::TableViewRef table, size_t own);

  /// Keeps the results of reader() valid for its lifetime. Any thread.
  class Use {
   public:
    explicit Use(Mapping& mapping) : mapping_(mapping) { ++mapping_.users_; }
    ~Use() {
      if (--mapping_.users_ == 0 && mapping_.has_dropped_) mapping_.unmap_later();
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    Mapping& mapping_;
  };

  /// Asks for missing segments, at growing intervals. Any thread.
  void ask();
  /// The segment of `server`; null if it is not mapped, or if gets must reach the server. Requires a Use.
  const shard::SegmentView* reader(size_t server);
  /// On the loop.
  void drop(base::Peer server);
  /// Drops the segments of a destroyed table. On the loop.
  void drop_destroyed();

 private:
  struct MappedShard {
    std::atomic<const shard::SegmentView*> reader{nullptr};
    std::atomic<bool> prepared{false};  // by the first reader; it would block the loop too long
    std::shared_ptr<const shard::SegmentView> kept;                  // loop only
    std::vector<std::shared_ptr<const shard::SegmentView>> dropped;  // loop only; callers may still be reading them
    bool asked = false;                                          // loop only
  };
  void ask_on_loop();
  void drop(MappedShard& part);
  void unmap_dropped();
  void unmap_later();
  void take(size_t server, std::shared_ptr<base::SharedMemory> memory);
  void take_remote(size_t server, std::shared_ptr<transport::RemoteMemory> memory);
  void use(size_t server, std::shared_ptr<const shard::SegmentView> segment);
  uint64_t elements_of(size_t server) const;

  runtime::Runtime& runtime_;
  const table::TableViewRef table_;
  const size_t own_;
  std::vector<MappedShard> parts_;
  std::atomic<uint64_t> asks_{0};
  std::atomic<uint32_t> users_{0};
  std::atomic<bool> has_dropped_{false};
};
using MappingRef = std::shared_ptr<Mapping>;

/// The mappings of all table handles of one node.
class Mappings {
 public:
  explicit Mappings(runtime::Runtime& runtime) : runtime_(runtime) {}
  /// The mapping for a table; null if there is nothing to map. `own`: the server that is this process, or SIZE_MAX.
  MappingRef map(const table::TableViewRef& table, size_t own);
  /// On the loop.
  void drop(base::Peer server);

 private:
  std::vector<MappingRef> all();

  runtime::Runtime& runtime_;
  std::mutex mutex_;
  std::vector<std::weak_ptr<Mapping>> mappings_;
  size_t swept_ = 0;  ///< size of mappings_ after expired entries were last removed
};

}  // namespace mv::api
