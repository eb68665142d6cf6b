#pragma once
// A table's parts on servers of this machine, mapped: gets copy their values straight out, without a message.

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/table/client/operation.hpp"
#include "runtime/runtime.hpp"
#include "shard/segment.hpp"
#include "transport/loop/loop.hpp"
#include "transport/shm/shm.hpp"

namespace mv::api {

/// What one handle has mapped. A server's part is asked for at the beginning, and at some of the gets that did without;
/// dropped when the server can't be reached in shared memory any more, or has destroyed the table, and then unmapped as
/// soon as nobody reads it.
class Mapping : public std::enable_shared_from_this<Mapping> {
 public:
  /// @param own   a server whose part needs no mapping, or SIZE_MAX
  Mapping(transport::Loop& loop, transport::ShmTransport& transport, table::TableViewRef table, size_t own);

  /// What reader() gives stays while its caller has one of these. Any thread.
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

  /// Asks for what is missing, if it is time to. Any thread.
  void ask();
  /// The part of `server`; null if it is not mapped, or gets have to reach the server. For a Use.
  const shard::SegmentReader* reader(size_t server);
  /// On the loop.
  void drop(base::Peer server);
  /// Drops parts of a table that was destroyed. On the loop.
  void drop_destroyed();

 private:
  struct MappedShard {
    std::atomic<const shard::SegmentReader*> reader{nullptr};
    std::atomic<bool> populated{false};  // by the first who reads, which would be long for the loop
    std::shared_ptr<shard::SegmentReader> kept;                  // the loop's
    std::vector<std::shared_ptr<shard::SegmentReader>> dropped;  // the loop's; callers may be reading them
    bool asked = false;                                          // the loop's
  };
  void ask_on_loop();
  void drop(MappedShard& part);
  void unmap_dropped();
  void unmap_later();
  void take(size_t server, std::shared_ptr<base::SharedMemory> memory);

  transport::Loop& loop_;
  transport::ShmTransport& transport_;
  const table::TableViewRef table_;
  const size_t own_;
  std::vector<MappedShard> parts_;
  std::atomic<uint64_t> asks_{0};
  std::atomic<uint32_t> users_{0};
  std::atomic<bool> has_dropped_{false};
};
using MappingRef = std::shared_ptr<Mapping>;

/// What the handles of one node have mapped.
class Mappings {
 public:
  explicit Mappings(runtime::Runtime& runtime) : runtime_(runtime) {}
  /// What is to be mapped of a table; null where nothing is. `own`: a server that is this process, or SIZE_MAX.
  MappingRef map(const table::TableViewRef& table, size_t own);
  /// On the loop.
  void drop(base::Peer server);

 private:
  std::vector<MappingRef> all();

  runtime::Runtime& runtime_;
  std::mutex mutex_;
  std::vector<std::weak_ptr<Mapping>> mappings_;
  size_t swept_ = 0;  ///< how many there were when those of closed handles were last removed
};

}  // namespace mv::api
