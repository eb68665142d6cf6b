#pragma once
// The server of a node's snapshots: sends peers any chunk of any version that still exists.
//
// A fetch by messages may take longer than two publications. The version that the first reader begins with is therefore
// held until all of its readers are done, and readers that come meanwhile get it, too. Its age is limited by the
// time-out: after that, new readers get the newest version, which is then held instead. A reader that is silent for as
// long no longer counts.

#include <cstddef>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/clock.hpp"
#include "base/link.hpp"
#include "engine/gossip/coding.hpp"
#include "engine/gossip/snapshot.hpp"
#include "wire/frame.hpp"

namespace mv::gossip {

/// Bytes that are requested and sent at a time: a multiple of every element size.
inline constexpr uint64_t kChunkBytes = 1 << 20;
/// Chunks that one peer may have requested and not received yet.
inline constexpr size_t kWindow = 4;

/// Serves snapshots. Chunks are copied out of the snapshot, so slow readers never block publishing. At most kWindow
/// chunks are kept for a peer that does not take them. Its further requests wait; no correct peer has more than kWindow
/// of them, and more are ignored.
class Serving {
 public:
  Serving(const base::Clock& clock, base::Link& link, Publisher& own, base::Nanos timeout)
      : clock_(clock), link_(link), own_(own), timeout_(timeout) {}

  /// @param request  a Fetch
  void on_fetch(base::Peer from, const wire::Message& request);
  void on_lost(base::Peer peer);
  /// Holds this version for an exchange, which needs exactly this one, for at most the time-out.
  void hold_for_exchange(std::shared_ptr<SnapshotReader> reader, uint64_t version);
  /// The version that is held; 0: none.
  uint64_t held() const { return held_.version; }
  base::Nanos next_deadline() const;
  void tick();
  /// Encoded bytes of snapshots, and the number of chunks that were the first of a version.
  uint64_t served_bytes() const { return served_bytes_; }
  uint64_t served_versions() const { return served_versions_; }

 private:
  /// A held version and its memory: a publisher that needs a larger memory leaves the old one unchanged.
  struct Held {
    std::shared_ptr<SnapshotReader> reader;
    uint64_t version = 0;
    base::Nanos since{0};
    std::unordered_map<base::Peer, base::Nanos> until;  ///< its readers, and when they expire
  };

  /// A peer's chunks.
  struct Chunks {
    bool has_room() const { return *under_way < kWindow; }
    std::shared_ptr<size_t> under_way = std::make_shared<size_t>(0);
    std::deque<std::vector<std::byte>> waiting;  ///< headers of its requests
    /// The number of the request with which it last began from the beginning. Those with smaller numbers, which come by another transport and
    /// were overtaken, have been given up.
    uint64_t begun = 0;
  };

  void answer(base::Peer from, const wire::Fetch& fetch);
  void hold(std::shared_ptr<SnapshotReader> reader, uint64_t version);
  void let_go();
  void forget_reader(base::Peer peer);
  void expire_readers();
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
  std::unordered_map<base::Peer, Chunks> chunks_;
  uint64_t served_bytes_ = 0, served_versions_ = 0;
};

}  // namespace mv::gossip
