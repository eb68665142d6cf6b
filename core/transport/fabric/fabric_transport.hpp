#pragma once
// TCP connections whose messages go by a fabric (fabric.hpp), such as UCX, where both sides have it.
//
// A pair connects over TCP, with the hello, its proofs and its fences. Both sides then tell each other over this
// connection their address in the fabric, and begin a line there. Each message by the line carries a token that is
// derived from the key of the hello and from both addresses, so only the peer of that hello can have sent it. The
// connection is reported when the line carries messages in both directions. TCP stays open: it notices the end of the
// peer's process at once, whatever network the fabric uses.
//
// A peer's memory can be read by its line, where the fabric can (Fabric::can_get()). The key for it is asked for, and
// answered, over TCP. It serves only to read, and ends with the line.
//
// A line that fails breaks its TCP connection too. TcpTransport then finds out whether the peer is lost, as after every
// break, or restores the connection, and a new line begins with it. A pair uses TCP alone, and why_not() says why, if
// the other side has no such fabric; if the connection is encrypted, which a fabric is not; if the line can't be made; or
// if it fails kMostFailures times shortly after it was made.

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/shared_memory.hpp"
#include "transport/fabric/traffic.hpp"
#include "transport/loop/handles.hpp"
#include "transport/tcp/tcp.hpp"
#include "transport/transport.hpp"

namespace mv::transport {

class FabricTransport final : public Transport, private base::LinkEvents, private LineEvents {
 public:
  /// @param options  as for TcpTransport, which this one makes
  FabricTransport(Loop& loop, TcpOptions options, std::unique_ptr<Fabric> fabric);
  ~FabricTransport() override;
  /// False if the kernel refuses to watch the fabric's descriptor. Then only the destructor may be called.
  bool ok() const { return traffic_.ok(); }

  TcpTransport& tcp() { return tcp_; }
  const mv_fabric_about& about() const { return traffic_.about(); }
  /// Whether messages to the peer go by the fabric.
  bool carries(base::Peer peer) const;
  /// Why they go by TCP instead; empty if they don't.
  std::string why_not(base::Peer peer) const;

  void attach(base::LinkEvents& events) override;
  base::Result<std::string> listen(const std::string& address) override { return tcp_.listen(address); }
  base::Result<std::string> adopt(int listening_fd) override { return tcp_.adopt(listening_fd); }
  void dial(const std::string& address) override;
  void send(base::Peer to, const base::Frame& frame) override;
  void close(base::Peer peer) override;
  void flush() override;
  void stop(std::function<void()> stopped) override;
  void cut(base::Peer peer) override { tcp_.cut(peer); }

  /// Whether peers' memory can be read at all.
  bool can_get() const { return traffic_.can_get(); }
  /// Whether ask() may find something.
  bool can_ask(base::Peer peer) const;
  /// Returns the memory of a table that a peer asks to read, or null if it may have none. Called on the loop.
  using Source = std::function<std::shared_ptr<base::SharedMemory>(base::Peer peer, uint64_t table)>;
  void serve(Source source) { source_ = std::move(source); }
  /// Requests the memory of a table of `peer`. `given` receives it later, or null; null at once without a line.
  using Given = std::function<void(std::shared_ptr<RemoteMemory>)>;
  void ask(base::Peer peer, uint64_t table, Given given);
  /// `lost` runs on the loop when memory of a peer can't be read any more.
  void set_on_memory_lost(std::function<void(base::Peer)> lost) { on_memory_lost_ = std::move(lost); }

  static constexpr int kMostFailures = 3;

 private:
  using Nanos = base::Nanos;
  enum class State {
    kMaking,   ///< until both directions carry messages
    kFabric,   ///< messages go by the fabric
    kTcp,      ///< by TCP, see why_not
    kBroken,   ///< the line has failed, and TCP is about to notice
    kClosing,  ///< close(): until the peer has read everything and ends the TCP connection
  };
  /// A connected peer.
  struct Line : LineEnd {
    base::Peer peer = base::kNobody;
    State state = State::kMaking;
    TcpTransport::Greeting greeting;
    std::vector<std::string> addresses;  // for on_connected(), once the line is made; `address` is the last of them
    bool was_reported = false;           // on_connected() of this peer
    std::string why_not;
    std::optional<Arrival> first;  // came before the peer's address
    Nanos deadline = base::kNever;
    Nanos made_at{0};
    int failures = 0;
    std::vector<std::pair<uint64_t, Given>> asks;         // by table
    std::vector<std::shared_ptr<RemoteMemory>> memories;  // that the peer has given
  };
  /// Memory of this process that peers may read.
  struct Exposed {
    std::shared_ptr<base::SharedMemory> memory;
    Fabric::Exposed handle;
    std::multiset<base::Peer> readers;  ///< may read it until they say that they have done so
  };
  LinkEvents& as_events() { return *this; }
  LineEvents& as_line_events() { return *this; }
  void on_connected(base::Peer peer, const std::string& address) override;
  void on_observer(base::Peer peer) override { events_->on_observer(peer); }
  void on_dial_failed(const std::string& address, const base::Status& why) override;
  void on_lost(base::Peer peer, const base::Status& why) override;
  void on_part(base::Peer from) override;
  void on_arrived(base::Peer, size_t bytes) override { tcp_bytes_ = bytes; }
  void on_message(base::Peer from, const wire::Message& message, std::span<const std::byte> payload) override;
  base::SinkRef on_header(base::Peer from, const wire::Message& message, size_t bytes) override;
  void on_payload(base::Peer from, const wire::Message& message, base::Sink& sink) override;

  bool has_lines() const override { return !numbers_.empty(); }
  void on_arrival(Arrival arrival) override;
  void on_moved(uint64_t number, const base::Status& status) override;
  void on_line_failed(uint64_t number, const base::Status& why) override;

  Line* find(base::Peer peer) const;
  Line& make_line(base::Peer peer, const TcpTransport::Greeting& greeting);
  void tell(const Line& line, std::span<const std::byte> address, const std::string& why);
  void take_address(Line& line, const wire::FabricLine& said);
  void use_tcp(Line& line, const std::string& why, bool tells);
  void report(Line& line);
  bool comes_by_tcp(base::Peer from);

  void give(const Line& line, uint64_t table);
  Exposed* expose(const std::shared_ptr<base::SharedMemory>& memory);
  void done_reading(base::Peer peer, uint64_t address);
  void conceal_unused();
  void release_unused();
  void take_memory(Line& line, const wire::FabricMemory& said);
  void end_memories(Line& line);

  void begin_closing(Line& line);
  void line_failed(Line& line, const std::string& why);
  void lose(Line& line, const base::Status& why);
  void hang_up(Line& line);
  void drop(base::Peer peer);
  void need_tick();
  void tick();
  void drain();

  Loop& loop_;
  const base::Peer self_;
  const Nanos patience_;
  FabricTraffic traffic_;
  TcpTransport tcp_;
  base::LinkEvents* events_ = nullptr;
  Timer timer_;
  std::unordered_map<base::Peer, std::unique_ptr<Line>> lines_;
  std::unordered_map<uint64_t, Line*> numbers_;
  std::vector<std::unique_ptr<Line>> dead_;  // freed when none of their callbacks can be on the stack
  std::multiset<std::string> dialed_;
  size_t tcp_bytes_ = 0;
  Source source_;
  std::function<void(base::Peer)> on_memory_lost_;
  std::vector<Exposed> exposed_;
  size_t memories_ = 0, flushes_ = 0;  // of all lines; since release_unused()
  bool told_of_tcp_ = false;
  bool stopping_ = false;
  std::function<void()> stopped_;
};

}  // namespace mv::transport
