#pragma once
// A node that has only a transport. It sends numbered messages with recognisable payloads, records its events, and checks that the
// transport keeps the promises of base/link.hpp.

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "transport/inproc/inproc.hpp"
#include "transport/loop/loop.hpp"
#include "transport/shm/shm.hpp"
#include "transport/tcp/tcp.hpp"

namespace mv::test {

using base::Nanos;
using base::Peer;
using namespace std::chrono_literals;

enum class Kind { kTcp, kInproc, kFaulty, kShm, kTls, kUcx, kMpi };  // kTls: TCP, encrypted

/// Longer than any successful operation takes, also under sanitizers on a busy machine.
inline constexpr Nanos kPatience = 20s;

/// A payload in which every byte depends on the message's number and the byte's position.
std::vector<std::byte> pattern(uint64_t seq, size_t bytes);

struct Heard {
  Peer from;
  uint64_t seq;
  size_t bytes;
  bool intact;    // equals pattern(seq, bytes); false if discarded
  bool streamed;  // through on_header() and on_payload()
  bool discarded;
};
struct Ended {
  Peer peer;            // either this
  std::string address;  // or that of a failed dial
  mv_status code;
  std::string text;
  Nanos at;
};
/// All events of a node.
struct Record {
  std::vector<std::pair<Peer, std::string>> connected;
  std::vector<Peer> observers;
  std::vector<Ended> lost, dial_failed;
  std::vector<Heard> messages;
  std::vector<std::string> violations;  // of the promises of LinkEvents

  size_t connections_of(Peer peer) const;
  bool has_lost(Peer peer) const;
  size_t messages_of(Peer peer) const;
};

class Node final : private base::LinkEvents {
 public:
  /// `options.self` is this node's incarnation.
  Node(Kind kind, const transport::TcpOptions& options);
  /// Closes without a goodbye, like a killed process.
  ~Node();

  Peer self() const { return self_; }
  transport::Loop& loop() { return loop_; }
  transport::Transport& transport() { return *transport_; }

  /// Listens at `address`, or at a free one, and returns the address.
  std::string listen();
  base::Result<std::string> listen(const std::string& address);
  void dial(const std::string& address);
  void send(Peer to, uint64_t seq, base::PayloadRef payload);
  void send(Peer to, uint64_t seq, size_t bytes);
  void close(Peer peer);
  void cut(Peer peer);
  /// Says goodbye to all peers; true once done.
  bool stop();

  /// Runs `fn` on the node's loop and waits for it.
  void run(const std::function<void()>& fn);
  /// The largest header that will arrive, in bytes; these tests send up to 128. Call this before any arrive.
  void expect_headers_up_to(size_t bytes) { most_header_ = bytes; }
  /// Waits until `holds` is true of the record.
  bool wait(const std::function<bool(const Record&)>& holds, Nanos limit = kPatience);
  Record record();
  /// Chooses where a streamed payload goes; on the loop. Default: the node's own memory, checked at the end.
  std::function<base::SinkRef(uint64_t seq, size_t bytes)> sink_for;
  /// Called before a transport shows a message's payload or asks for its place; on the loop.
  std::function<void(uint64_t seq)> before_payload;
  /// Called when a dial has failed; on the loop.
  std::function<void(const std::string& address)> after_failed_dial;

 private:
  void on_connected(Peer peer, const std::string& address) override;
  void on_observer(Peer peer) override;
  void on_dial_failed(const std::string& address, const base::Status& why) override;
  void on_lost(Peer peer, const base::Status& why) override;
  void on_arrived(Peer from, size_t bytes) override;
  void on_message(Peer from, const wire::Message& message, std::span<const std::byte> payload) override;
  base::SinkRef on_header(Peer from, const wire::Message& message, size_t bytes) override;
  void on_payload(Peer from, const wire::Message& message, base::Sink& sink) override;

  void note(const std::function<void(Record&)>& what);
  void check(bool holds, const char* promise);
  void check_from(Peer from);
  void check_size(Peer from, size_t payload_bytes);

  const Kind kind_;
  const Peer self_;
  transport::Loop loop_;
  std::unique_ptr<transport::Transport> transport_;
  bool in_a_call_ = false;  // into the transport: on the loop
  std::mutex mutex_;
  std::condition_variable changed_;
  Record record_;
  std::map<Peer, std::pair<uint64_t, size_t>> streaming_;  // seq, bytes
  std::map<Peer, size_t> arrived_;                         // of the message that is arriving
  size_t most_header_ = 128;
};

/// Two connected nodes; `b` dialed `a`.
struct Pair {
  explicit Pair(Kind kind, transport::TcpOptions options = {});
  Pair(Kind kind, transport::TcpOptions options, Peer a_self, Peer b_self);
  std::unique_ptr<Node> a, b;
  std::string address;  // of a
  bool connected = false;
};

}  // namespace mv::test
