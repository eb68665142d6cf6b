#pragma once
// A server's segment (shard/segment.hpp) that is read by a network, without a message.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "shard/segment.hpp"
#include "transport/fabric/remote_memory.hpp"
#include "transport/loop/loop.hpp"

namespace mv::api {

/// Reads the guards of the stripes, then the values, then the guards again. Each step begins after the previous one has ended. A step that fails, or takes
/// longer than a second, closes the segment: gets are then sent as messages. Any thread, but not on the loop.
class RemoteSegment final : public shard::SegmentView {
 public:
  /// Checks that the memory is a segment with exactly this layout. On the loop; `opened` receives it there, later, or null.
  static void open(transport::Loop& loop, std::shared_ptr<transport::RemoteMemory> memory, const shard::Spec& spec, uint64_t elements,
                   std::function<void(std::shared_ptr<RemoteSegment>)> opened);

  bool read(uint64_t first, uint64_t count, std::byte* out) const override;
  bool read_rows(std::span<const int64_t> ids, int64_t first_row, std::byte* out) const override;
  bool has_reached(uint64_t clock) const override;
  bool destroyed() const override { return closed_.load(std::memory_order_acquire); }
  bool is_closed() const override { return closed_.load(std::memory_order_acquire); }
  base::Nanos longest_wait() const override;

 private:
  /// Consecutive elements, and where they go.
  struct Piece {
    uint64_t first, count;
    std::byte* out;
  };
  struct Outcome;

  RemoteSegment(transport::Loop& loop, std::shared_ptr<transport::RemoteMemory> memory, const shard::Spec& spec, shard::SegmentLayout layout)
      : loop_(loop), memory_(std::move(memory)), dtype_(spec.dtype), cols_(spec.cols), out_bytes_(spec.element_bytes()), layout_(layout) {}
  bool read(std::span<const Piece> pieces) const;
  bool fetch(std::vector<transport::RemoteRange> ranges, std::vector<std::byte>& into) const;
  bool fetch_guards(uint64_t first, uint64_t last, std::vector<uint64_t>& sequences) const;
  bool note(const shard::HeadWords& head) const;

  transport::Loop& loop_;
  const std::shared_ptr<transport::RemoteMemory> memory_;
  const mv_dtype dtype_;
  const uint64_t cols_;
  const size_t out_bytes_;  ///< of an element of dtype_
  const shard::SegmentLayout layout_;
  mutable std::atomic<bool> closed_{false};
};

}  // namespace mv::api
