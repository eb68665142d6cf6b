#pragma once
// The server side of rpc: starts each request once, in sequence order, and answers it.

#include <array>
#include <map>
#include <unordered_map>
#include <vector>

#include "engine/rpc/pending.hpp"
#include "engine/rpc/seq_set.hpp"
#include "wire/form.hpp"

namespace mv::rpc {

/// One stream of numbered requests from each client. Deduplication needs little memory: the next number to start, the
/// numbers in progress, and the answers that the client has not acknowledged. Answers of successful changes are not
/// kept (their number suffices), nor are those of gets: a repeated get runs again, and its values may be newer, never
/// older. Loop thread only. Service calls answer(), finish(), fail() and grant(), at once or later.
class Server {
 public:
  Server(base::Link& link, Service& service) : link_(link), service_(service) {}
  /// Makes these the streams of a part: see Message.part.
  void set_part(uint32_t part) { part_ = part; }

  /// Messages from clients: requests, Data, Probe, Cancel, Seen.
  void on_message(base::Peer client, const wire::Message& message, std::span<const std::byte> payload, const base::SinkRef& staged);
  base::SinkRef on_header(base::Peer client, const wire::Message& message, size_t bytes);
  void on_lost(base::Peer client) { streams_.erase(client); }
  /// Makes the client retransmit its unanswered requests, which were dropped here.
  void ask_again(base::Peer client) { send_progress(client, streams_[client], UINT64_MAX); }
  /// Requests that Service::may_start() has held back may start now.
  void go_on(base::Peer client) {
    start_early(client);
    ask_again(client);
  }

  /// For a copy of another process's streams (engine/replica/): repeats the start of a request, with the `done` of its
  /// message, the arrival of its granted payload, and its cancellation. Missing numbers were reads. MV_EPROTOCOL for
  /// numbers that no server can have passed on.
  base::Status replay(const Asked& asked, Seq done, const wire::Message& message, std::span<const std::byte> payload, const base::SinkRef& staged);
  void replay_data(const Asked& asked, std::span<const std::byte> payload, const base::SinkRef& staged);
  void replay_cancel(const Asked& asked);

  /// All requests that have started are finished or failed.
  bool is_idle() const;
  /// While the server is idle: all streams, for a copy; and a stream with this state.
  std::vector<flatbuffers::Offset<wire::StreamState>> write_state(flatbuffers::FlatBufferBuilder& fbb) const;
  base::Status restore(const wire::StreamState& state);

  /// Answers a request with a frame from FrameBuilder. Ignored if the client is gone or has its answer.
  void answer(const Asked& asked, base::Frame frame);
  /// A change is applied. The next flush() acknowledges it cumulatively.
  void finish(const Asked& asked);
  /// Like finish(), for a change whose end its client does not wait for. The acknowledgement leaves with another
  /// answer or acknowledgement to the client, or after kMostLate changes, or after kLatest.
  void finish_later(const Asked& asked, base::Nanos now);
  /// The request failed. The error is sent at once, also for a change.
  void fail(const Asked& asked, const base::Status& why);
  /// Splits a request into `parts` parts, which finish() and fail() end one by one. After the last one it calls
  /// over(first error); without `over` it finishes or fails the request.
  using Over = std::function<void(const base::Status&)>;
  void split(const Asked& asked, size_t parts, Over over = nullptr);
  /// The kind of a started request without an answer; NONE for others.
  wire::Body kind_of(const Asked& asked);
  /// Requests the payload that the request offered.
  void grant(const Asked& asked);

  /// Numbers of started requests, by wire::Body, and of duplicates, which were answered again or dropped.
  const std::array<uint64_t, 256>& started() const { return started_; }
  uint64_t duplicates() const { return duplicates_; }

  /// Sends acknowledgements. To be called before the loop would block.
  void flush();
  /// Acknowledges the requests of one client at once, so that the acknowledgement precedes the next message to it.
  void acknowledge(base::Peer client);
  /// The same if enough of finish_later() has come together that a message is worth it.
  void acknowledge_many(base::Peer client);
  base::Nanos next_deadline() const { return late_at_; }
  void tick(base::Nanos now);

 private:
  static constexpr base::Nanos kLatest = std::chrono::milliseconds(2);
  static constexpr uint32_t kManyLate = 8, kMostLate = 32;
  struct Early {
    std::vector<std::byte> header;
    std::vector<std::byte> payload;
  };
  struct Running {
    wire::Body kind = wire::Body::NONE;
    bool granted = false;
    bool data_here = false;
  };
  struct Kept {
    base::Frame frame;
    bool holds_done = false;  ///< an error: `done` must not pass it before the client has acknowledged it
  };
  struct Split {
    size_t open;
    Over over;
    base::Status error = {};
  };
  struct Stream {
    Seq next = 1;                        ///< the next number to start
    Seq done = 0;                        ///< all up to here have succeeded, or their error was acknowledged
    Seq starting = 0;                    ///< inside on_request() now; most changes finish before it returns
    Running start_state;
    std::map<Seq, Running> running;      ///< started, not answered, and not `starting`
    SeqSet finished;                     ///< succeeded, but beyond `done`
    std::map<Seq, Split> split;
    std::map<Seq, Kept> kept;            ///< answers that the client has not acknowledged
    std::map<Seq, Early> early;          ///< arrived before their predecessors (links that reorder)
    size_t early_bytes = 0;
    Seq gap_told = 0;                    ///< the missing number last reported to the client
    Seq dropped = 0;                     ///< the last one that arrived too early, and was not kept; 0: none
    bool owes_ack = false;
    bool dirty = false;                  ///< listed in dirty_
    bool late = false;                   ///< listed in late_
    uint32_t late_changes = 0;           ///< of finish_later(), not acknowledged
  };

  void start(base::Peer client, Stream& stream, const wire::Message& message, std::span<const std::byte> payload,
             const base::SinkRef& staged);
  void start_early(base::Peer client);
  void skip_through(Stream& stream, Seq done);
  void skip_gap(base::Peer client, Stream& stream, Seq through);
  void drop(base::Peer client, Stream& stream, Seq seq);
  void ask_for_dropped(base::Peer client, Stream& stream);
  void stash(base::Peer client, Stream& stream, const wire::Message& message, std::span<const std::byte> payload);
  void repeat(base::Peer client, Stream& stream, const wire::Message& message, std::span<const std::byte> payload);
  void on_data(base::Peer client, Stream& stream, const wire::Message& message, std::span<const std::byte> payload,
               const base::SinkRef& staged);
  void acknowledged(Stream& stream, Seq done);
  void mark_finished(base::Peer client, Stream& stream, Seq seq);
  void advance(base::Peer client, Stream& stream);
  void send(base::Peer client, Stream& stream, Seq seq, base::Frame& frame);
  void send_grant(base::Peer client, Stream& stream, Seq seq);
  void send_ack(base::Peer client, Stream& stream);
  void send_progress(base::Peer client, Stream& stream, Seq through);
  void part_over(const Asked& asked, const base::Status& status);
  Running* find_running(Stream& stream, Seq seq);
  Stream* take_running(const Asked& asked, Running* running = nullptr);

  base::Link& link_;
  Service& service_;
  uint32_t part_ = 0;  ///< 0: the streams of the node itself
  wire::FrameBuilder builder_;
  const wire::Form<wire::Ack> ack_{wire::Body::Ack, [](flatbuffers::FlatBufferBuilder& fbb) { return wire::CreateAck(fbb); }};
  std::unordered_map<base::Peer, Stream> streams_;
  std::vector<base::Peer> dirty_;
  std::vector<base::Peer> late_;
  base::Nanos late_at_ = base::kNever;
  std::array<uint64_t, 256> started_{};
  uint64_t duplicates_ = 0;
};

}  // namespace mv::rpc
