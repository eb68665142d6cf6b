#pragma once
// The client side of rpc: sends requests, and repeats them until they are answered.

#include <deque>
#include <functional>
#include <unordered_map>
#include <vector>

#include "base/clock.hpp"
#include "engine/rpc/backlog.hpp"

namespace mv::rpc {

struct ClientOptions {
  /// Silence after which the server is probed about unanswered requests. kNever for links that lose no messages while
  /// they are connected.
  base::Nanos probe_after = base::kNever;
  /// Bytes that may be in flight to or from one server. Changes are counted separately. One request is always allowed.
  size_t window_bytes = 8 << 20;
};

/// One stream of numbered requests to each server. After a reconnection, or after a long silence on links that lose
/// messages, the client asks the server for its progress and retransmits only missing requests. The server starts each
/// number once (engine/rpc/server.hpp). Loop thread only. Callbacks to Pending may call back into this object.
class Client {
 public:
  Client(const base::Clock& clock, base::Link& link, ClientOptions options) : clock_(clock), link_(link), options_(options) {}
  /// `connect` runs when a request waits for a connection to this peer that has not been made yet.
  void connect_by(std::function<void(base::Peer)> connect) { connect_ = std::move(connect); }

  /// Queues a request by its priority. Fails it at once if the peer is lost.
  void call(base::Peer server, Call&& call);
  /// Cancels a request. An unsent request ends at once with MV_ECANCELED. For a sent one the server is notified, and
  /// the request ends with the server's answer. Unknown requests are ignored.
  void cancel(base::Peer server, const Pending* pending);
  /// What to retransmit for an abandoned request that the server has not received, because its number must arrive in
  /// any case.
  enum class IfUnseen { kSend, kVoid };
  /// Finishes the Pending of a request with `status` at once, without waiting for the server. kVoid: a retransmission
  /// sends a harmless request in its place.
  void abandon(base::Peer server, const Pending* pending, const base::Status& status, IfUnseen unseen = IfUnseen::kSend);
  /// True if nothing of this request was sent yet; also for unknown requests.
  bool unsent(base::Peer server, const Pending* pending);

  /// From now on, the process `by` answers the requests of this stream, which are for the part of `server` (see
  /// Message.part). Both may be the same process.
  void serve_by(base::Peer server, base::Peer by, uint32_t part, bool connected);
  void on_connected(base::Peer server);
  void on_lost(base::Peer server, const base::Status& why);
  bool is_lost(base::Peer server) const;
  /// Drops the stream of a lost peer to which no request will ever be made. Call after on_lost().
  void forget(base::Peer server) { streams_.erase(server); }

  /// Messages from servers: Reply and other answers, Ack, Progress, Grant.
  void on_answer(base::Peer server, const wire::Message& message, std::span<const std::byte> payload);
  base::SinkRef on_answer_header(base::Peer server, const wire::Message& message, size_t bytes);

  /// Number of retransmitted requests.
  uint64_t repeated() const { return repeated_; }

  base::Nanos next_deadline() const;
  void tick();
  /// Sends acknowledgements of errors. To be called before the loop would block.
  void flush();

 private:
  struct Sent {
    Call call;
    bool finished = false;
    bool data_sent = false;
    bool withdrawn = false;  ///< cancelled: the Cancel is repeated while the server still has the request
  };
  struct Stream {
    bool connected = false;
    base::Status lost;
    Seq first = 1;              ///< number of window.front()
    std::deque<Sent> window;    ///< sent requests, from an unfinished one on
    size_t open = 0;            ///< the unfinished ones in the window
    std::map<Seq, Sent> stragglers;  ///< unfinished requests from before the window: see retire()
    Backlog backlog;            ///< unsent: no room in the window, or not connected
    size_t window_bytes = 0;    ///< cost of all requests in flight
    size_t change_bytes = 0;    ///< cost of the changes among them
    base::Nanos probe_at = base::kNever;
    base::Nanos probe_wait{0};
    bool owes_ack = false;
    base::Peer by = base::kNobody;  ///< see serve_by(); kNobody: the server itself
    uint32_t part = 0;
  };

  static Seq done(const Stream& stream) { return (stream.stragglers.empty() ? stream.first : stream.stragglers.begin()->first) - 1; }
  static Seq last(const Stream& stream) { return stream.first + stream.window.size() - 1; }
  static bool is_idle(const Stream& stream) { return stream.window.empty() && stream.stragglers.empty(); }
  template <typename Each>
  static void for_each_in_flight(Stream& stream, Each each);
  Sent* find(Stream& stream, Seq seq);
  Seq in_flight(Stream& stream, const Pending* pending);
  bool has_room(const Stream& stream, const Call& call) const;
  void start(base::Peer server, Stream& stream, Call&& started);
  void pump(base::Peer server, Stream& stream);
  void send(base::Peer server, const Stream& stream, Seq seq, base::Frame& frame);
  void transmit(base::Peer server, Stream& stream, Seq seq, Sent& sent);
  void send_data(base::Peer server, Stream& stream, Seq seq, Sent& sent);
  void send_bare(base::Peer server, Stream& stream, wire::Body kind, Seq seq);
  void probe(base::Peer server, Stream& stream);
  void heard(Stream& stream);
  void finish(Stream& stream, Seq seq, Sent& sent, const base::Status& status, const wire::Message* answer, std::span<const std::byte> payload);
  void finish_through(Stream& stream, Seq done);
  void retire(Stream& stream);
  void on_progress(base::Peer server, Stream& stream, const wire::Message& message);
  void skip_finished(base::Peer server, Stream& stream, Seq& next, Seq end);
  void connect_if_awaited(base::Peer server, const Stream& stream) const;

  const base::Clock& clock_;
  base::Link& link_;
  const ClientOptions options_;
  wire::FrameBuilder builder_;
  std::unordered_map<base::Peer, Stream> streams_;
  bool owes_acks_ = false;  ///< one of them does
  std::function<void(base::Peer)> connect_;
  uint64_t repeated_ = 0;
};

}  // namespace mv::rpc
