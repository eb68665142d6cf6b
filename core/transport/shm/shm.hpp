#pragma once
// The transport between processes of one user on one machine: messages through shared memory, without a system call
// while both sides are awake. Addresses are "shm:name", in the kernel's table of abstract socket names, of which each
// network namespace has its own. A process that answers there can receive descriptors, and therefore shares this
// machine's memory.
//
// It does not reconnect: this transport reports a broken connection as lost, with MV_EUNREACHABLE. A goodbye is
// MV_EPEERLOST, as on every transport.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/listener.hpp"
#include "transport/peering/peering.hpp"
#include "transport/shm/connection.hpp"
#include "transport/transport.hpp"

namespace mv::transport {

struct ShmOptions : HelloOptions {
  ShmOptions() : HelloOptions(256) {}
};

class ShmTransport final : public Transport, private ShmEvents, private Watched {
 public:
  ShmTransport(Loop& loop, ShmOptions options);
  ~ShmTransport() override;

  /// The address at which the node of this incarnation listens by convention.
  static std::string address_of(base::Peer peer);

  void attach(base::LinkEvents& events) override { events_ = &events; }
  base::Result<std::string> listen(const std::string& address) override;
  base::Result<std::string> adopt(int listening_fd) override;
  void dial(const std::string& address) override;
  void send(base::Peer to, const base::Frame& frame) override;
  void close(base::Peer peer) override;
  void flush() override;
  void stop(std::function<void()> stopped) override;
  void cut(base::Peer peer) override;

  /// Sets the check that admits a peer; without it every peer that knows the secret is admitted. A peer that is not
  /// admitted waits for admit(), for at most the time-out of the hello.
  void set_admission(std::function<bool(base::Peer)> admission) { admission_ = std::move(admission); }
  void admit(base::Peer peer) { settle_held(peer); }
  bool reaches(base::Peer peer) const { return peers_.contains(peer); }
  /// Processes all that this peer has sent so far.
  void drain(base::Peer peer);
  /// Returns the memory of a table that a peer asks to map, or null if it may have none. Called on the loop.
  using Source = std::function<std::shared_ptr<base::SharedMemory>(base::Peer peer, uint64_t table)>;
  void serve(Source source) { source_ = std::move(source); }
  /// Requests the memory of a table of `peer`. `given` receives it later, or null; null at once without a connection.
  void ask(base::Peer peer, uint64_t table, ShmConnection::Given given);

 private:
  using Nanos = base::Nanos;
  struct Entry {
    std::unique_ptr<ShmConnection> connection;
    bool dialed = false;
    base::Peer peer = base::kNobody;  // set by the decision about the hello
    Nanos deadline = base::kNever;
    bool held = false;      // accepted: waits for the result of our own dial to that peer, or for admit()
    bool stranger = false;  // counted in strangers_
  };

  ShmEvents& as_owner() { return *this; }
  void on_deciding(ShmConnection& connection) override;
  void on_standing(ShmConnection& connection) override;
  void on_failed(ShmConnection& connection, const base::Status& why) override;
  void on_ended(ShmConnection& connection, End how, const base::Status& why) override;
  std::shared_ptr<base::SharedMemory> on_asked(ShmConnection& connection, uint64_t table) override;

  bool poll() override;
  bool before_sleep() override;
  void after_sleep() override;
  Writers writers() const override;

  void on_accept(Fd fd);
  void start_dial(const std::string& address);
  Entry& add_connection(const std::string& address, Fd fd, bool dialed);
  Entry& entry_of(const ShmConnection& connection) { return connections_.at(&connection); }
  void bury(ShmConnection& connection);
  wire::Handshake make_handshake(wire::Handshake::Side side) const;
  void need_tick();
  void decide(Entry& entry);
  void settle_held(base::Peer peer);
  ShmConnection* find(base::Peer peer) const;
  void tick();

  Loop& loop_;
  const ShmOptions options_;
  base::LinkEvents* events_ = nullptr;
  Source source_;
  std::function<bool(base::Peer)> admission_;
  std::map<std::string, std::unique_ptr<Listener>> listeners_;
  std::unordered_map<const ShmConnection*, Entry> connections_;
  std::unordered_map<base::Peer, ShmConnection*> peers_;  // the open ones
  std::vector<ShmConnection*> open_;                      // those of peers_ and those that are closing, for poll()
  std::vector<std::unique_ptr<ShmConnection>> dead_;      // freed when none of their callbacks can be on the stack
  Peering peering_;
  std::vector<std::string> to_dial_;                      // started by flush(): a dial may fail at once
  size_t strangers_ = 0;
  Timer timer_;
  bool stopping_ = false;
  std::function<void()> stopped_;
};

}  // namespace mv::transport
