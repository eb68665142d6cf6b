#pragma once
// A table's parts on servers of this machine, mapped: gets copy their values straight out, without a message.

#include <atomic>
#include <memory>
#include <vector>

#include "engine/ps/operation.hpp"
#include "io/loop/loop.hpp"
#include "io/shm/shm.hpp"
#include "table/segment.hpp"

namespace mv::node {

/// What one handle has mapped. A server's part is asked for at the beginning, and at some of the gets that did without,
/// and dropped when the server can't be reached in shared memory any more.
class Mapping : public std::enable_shared_from_this<Mapping> {
 public:
  /// @param own   a server whose part needs no mapping, or SIZE_MAX
  Mapping(io::Loop& loop, io::ShmRoad& road, ps::TableViewRef table, size_t own);
  ~Mapping();

  /// Asks for what is missing, if it is time to. Any thread.
  void ask();
  /// The part of `server`, as long as this object is there; null if it is not mapped, or gets have to reach the server.
  /// Any thread.
  const table::SegmentReader* reader(size_t server);
  /// On the loop.
  void drop(base::Peer server);

 private:
  struct Part {
    std::atomic<const table::SegmentReader*> reader{nullptr};
    std::atomic<bool> populated{false};  // by the first who reads, which would be long for the loop
    std::vector<std::shared_ptr<table::SegmentReader>> kept;  // the loop's; callers may be reading what was dropped
    bool asked = false;                                       // the loop's
  };
  void ask_on_loop();
  void take(size_t server, std::shared_ptr<base::SharedMemory> memory);

  io::Loop& loop_;
  io::ShmRoad& road_;
  const ps::TableViewRef table_;
  const size_t own_;
  std::vector<Part> parts_;
  std::atomic<uint64_t> asks_{0};
};
using MappingRef = std::shared_ptr<Mapping>;

}  // namespace mv::node
