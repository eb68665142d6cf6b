#pragma once
// Answers peers who fetch: any chunk of any version that is still there.
//
// Who fetches by messages may need longer than it takes to publish twice. So the version that the first of them begins with is held until
// all have what they want of it; those who come meanwhile begin with it, too. It is as old as they are slow, but not older than the time-out:
// then the newest is held instead. Whoever is silent for so long counts no more.

#include <memory>
#include <unordered_map>

#include "base/clock.hpp"
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
  Serving(const base::Clock& clock, base::Link& link, Publisher& own, base::Nanos timeout)
      : clock_(clock), link_(link), own_(own), timeout_(timeout) {}

  void on_fetch(base::Peer from, const wire::Fetch& fetch);
  void on_lost(base::Peer peer);
  /// Holds this version for an exchange, in which nobody wants another, as long as one may take.
  void hold_for_exchange(std::shared_ptr<SnapshotReader> reader, uint64_t version);
  /// The version that is held; 0: none.
  uint64_t held() const { return held_.version; }
  base::Nanos next_deadline() const;
  void tick();
  /// Of snapshots, as encoded; and chunks that were the first of a version.
  uint64_t served_bytes() const { return served_bytes_; }
  uint64_t served_versions() const { return served_versions_; }

 private:
  /// Versions are of one memory: a publisher that needs a larger one leaves the old as it is.
  struct Held {
    std::shared_ptr<SnapshotReader> reader;
    uint64_t version = 0;
    base::Nanos since{0};
    std::unordered_map<base::Peer, base::Nanos> until;  ///< who reads it, and when they count no more
  };

  void hold(std::shared_ptr<SnapshotReader> reader, uint64_t version);
  void let_go();
  void forget_reader(base::Peer peer);
  Held choose(const wire::Fetch& fetch);
  bool is_held(const Held& chosen) const { return held_.version == chosen.version && held_.reader == chosen.reader; }
  void note_reader(base::Peer from, const Held& chosen);
  void answer_absent(base::Peer to, uint64_t number, wire::Absence absence);
  base::PayloadRef chunk(base::Peer to, const SnapshotReader& reader, const Description& known, uint64_t first, uint64_t count,
                         codec::CodecRef codec);
  base::PayloadRef counted(base::Peer to, std::span<const std::byte> bytes, std::shared_ptr<const void> keep);

  const base::Clock& clock_;
  base::Link& link_;
  Publisher& own_;
  const base::Nanos timeout_;
  Held held_;
  wire::FrameBuilder builder_;
  std::unordered_map<base::Peer, std::shared_ptr<size_t>> under_way_;  ///< chunks
  uint64_t served_bytes_ = 0, served_versions_ = 0;
};

}  // namespace mv::gossip
