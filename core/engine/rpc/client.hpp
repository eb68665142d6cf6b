#pragma once
// Sends requests until they are answered.

#include <deque>
#include <unordered_map>
#include <vector>

#include "base/clock.hpp"
#include "engine/rpc/backlog.hpp"

namespace mv::rpc {

struct ClientOptions {
  /// Silence after which unanswered requests are asked after. kNever where the link loses nothing while it stands.
  base::Nanos probe_after = base::kNever;
  /// Bytes that may be under way to or from one server, of changes by themselves; at least one request always is.
  size_t window_bytes = 8 << 20;
};

/// One stream of numbered requests to each server. After a reconnection, or a long silence on links that lose messages, it asks
/// the server how far it is and sends again what is missing; the server starts each number once (engine/rpc/server.hpp).
/// Loop thread only. Callbacks to Pending may call back into this object.
class Client {
 public:
  Client(const base::Clock& clock, base::Link& link, ClientOptions options) : clock_(clock), link_(link), options_(options) {}

  /// Queues a request, by its priority. To a peer that is lost it fails at once.
  void call(base::Peer server, Call call);
  /// Withdraws a request. One that was not sent yet ends at once with MV_ECANCELED; else the server is told, and it ends with
  /// what the server says. Unknown ones are ignored.
  void cancel(base::Peer server, const Pending* pending);
  /// What becomes of an abandoned request that the server has not received: its number has to come all the same.
  enum class IfUnseen { kSend, kVoid };
  /// Ends a request here and now, without waiting for the server: its Pending is finished with `status`. kVoid: where the request
  /// would have to be sent again, a harmless one goes in its place.
  void abandon(base::Peer server, const Pending* pending, const base::Status& status, IfUnseen unseen = IfUnseen::kSend);
  /// True if nothing of this request has left yet; also for unknown ones.
  bool unsent(base::Peer server, const Pending* pending) const;

  void on_connected(base::Peer server);
  void on_lost(base::Peer server, const base::Status& why);
  bool is_lost(base::Peer server) const;
  /// After on_lost(), of somebody who will never be asked anything.
  void forget(base::Peer server) { streams_.erase(server); }

  /// Messages from servers: Reply and other answers, Ack, Progress, Grant.
  void on_answer(base::Peer server, const wire::Message& message, std::span<const std::byte> payload);
  base::SinkRef on_answer_header(base::Peer server, const wire::Message& message, size_t bytes);

  /// Requests that were sent again.
  uint64_t repeated() const { return repeated_; }

  base::Nanos next_deadline() const;
  void tick();
  /// Sends what acknowledges errors; call when the loop has nothing else to do.
  void flush();

 private:
  struct Sent {
    Call call;
    bool finished = false;
    bool data_sent = false;
    bool withdrawn = false;  ///< cancelled: the server is told again whenever it still has it
  };
  struct Stream {
    bool connected = false;
    base::Status lost;
    Seq first = 1;              ///< number of window.front()
    std::deque<Sent> window;    ///< sent and not finished, or behind such a one
    Backlog backlog;            ///< not sent: beyond the window, or not connected
    size_t window_bytes = 0;    ///< of all that is under way
    size_t change_bytes = 0;    ///< of that the changes
    base::Nanos probe_at = base::kNever;
    base::Nanos probe_wait{0};
    bool owes_ack = false;
  };

  Seq done(const Stream& stream) const { return stream.first - 1; }
  Sent* find(Stream& stream, Seq seq);
  bool has_room(const Stream& stream, const Call& call) const;
  void start(base::Peer server, Stream& stream, Call started);
  void pump(base::Peer server, Stream& stream);
  void transmit(base::Peer server, Stream& stream, Seq seq, Sent& sent);
  void send_data(base::Peer server, Stream& stream, Seq seq, Sent& sent);
  void send_bare(base::Peer server, Stream& stream, wire::Body kind, Seq target);
  void probe(base::Peer server, Stream& stream);
  void heard(Stream& stream);
  void finish(Stream& stream, Sent& sent, const base::Status& status, const wire::Message* answer, std::span<const std::byte> payload);
  void finish_through(Stream& stream, Seq done);
  void retire(Stream& stream);
  void on_progress(base::Peer server, Stream& stream, const wire::Message& message);

  const base::Clock& clock_;
  base::Link& link_;
  const ClientOptions options_;
  wire::FrameBuilder builder_;
  std::unordered_map<base::Peer, Stream> streams_;
  uint64_t repeated_ = 0;
};

}  // namespace mv::rpc
