#pragma once
// Answers peers who fetch: any chunk of any version that is still there.

#include <memory>
#include <unordered_map>

#include "base/link.hpp"
#include "engine/gossip/coding.hpp"
#include "engine/gossip/snapshot.hpp"
#include "wire/frame.hpp"

namespace mv::gossip {

/// So many bytes are asked for, and sent, at a time: a multiple of every element.
inline constexpr uint64_t kChunkBytes = 1 << 20;
/// Chunks that one peer may have asked for and not got.
inline constexpr size_t kWindow = 4;

/// Chunks are copied out of the snapshot, which goes on without waiting for whoever reads slowly. Of a peer that does not take its
/// chunks no more than kWindow are kept: further questions of its are not heard.
class Serving {
 public:
  Serving(base::Link& link, const Publisher& own) : link_(link), own_(own) {}

  void on_fetch(base::Peer from, const wire::Fetch& fetch);
  void on_lost(base::Peer peer) { under_way_.erase(peer); }
  /// Of snapshots, as encoded; and chunks that were the first of a version.
  uint64_t served_bytes() const { return served_bytes_; }
  uint64_t served_versions() const { return served_versions_; }

 private:
  void answer_absent(base::Peer to, uint64_t number, wire::Absence absence);
  base::PayloadRef chunk(base::Peer to, const SnapshotReader& reader, const Description& known, uint64_t first, uint64_t count,
                         codec::CodecRef codec);
  base::PayloadRef counted(base::Peer to, std::span<const std::byte> bytes, std::shared_ptr<const void> keep);

  base::Link& link_;
  const Publisher& own_;
  wire::FrameBuilder builder_;
  std::unordered_map<base::Peer, std::shared_ptr<size_t>> under_way_;  ///< chunks
  uint64_t served_bytes_ = 0, served_versions_ = 0;
};

}  // namespace mv::gossip
