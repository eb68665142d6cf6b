#pragma once
// Router: a node's transports as one Link. Chooses the transport for each peer.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/trace.hpp"
#include "base/traffic.hpp"
#include "runtime/settings.hpp"
#include "runtime/transport_choice.hpp"
#include "transport/shm/shm.hpp"
#include "transport/transport.hpp"

namespace mv::transport {
class FabricTransport;
class JobTransport;
class TcpTransport;
}

namespace mv::runtime {

/// The node itself and "inproc:" addresses are reached within the process, other peers over TCP. If a peer turns out to
/// be on this machine (its node answers in shared memory), messages take that path, and the TCP connection reports the
/// peer's end. If the path breaks, TCP takes over again. runtime/transport_choice.hpp decides about shared memory, and about
/// UCX or MPI, which take the place of TCP (transport/fabric). With faults (Settings::faults), everything except a node's
/// path to itself goes through transport/faulty. Loop thread only; make() and listen(): before the loop starts.
class Router final : public base::Link {
 public:
  /// The incarnations that may never connect again: all that were lost, or only those that were closed.
  enum class Fencing { kLost, kClosed };
  /// @param trace  must outlive the router
  /// @param job    with transport=mpi, what open_mpi() has made
  static base::Result<std::unique_ptr<Router>> make(transport::Loop& loop, const Settings& settings, base::Peer self, base::TraceRing& trace,
                                                    Fencing fencing = Fencing::kLost, std::optional<MpiJob> job = std::nullopt);
  ~Router() override;

  void attach(base::LinkEvents& events);
  base::Result<std::string> listen(const std::string& address);
  base::Result<std::string> adopt(int listening_fd);
  /// Sets the address to introduce this node by, if it is not the one that listen() returned. Before the loop starts.
  void introduce_as(const std::string& address);
  /// Says goodbye to all peers; `stopped` runs on the loop once everything is sent and closed.
  void stop(std::function<void()> stopped);
  /// The transports that this node uses, and why.
  const std::string& choice() const { return choice_; }
  /// Whether messages may get lost while the connection stays up.
  bool lossy() const { return lossy_; }
  /// The shared-memory transport; null if there is none.
  transport::ShmTransport* shm() const { return shm_transport_; }
  /// The transport by UCX, if its peers can read each other's memory; else null.
  transport::FabricTransport* fabric() const;
  /// The transport to a peer; nullopt if there is no connection. `why_not_shm`: why messages go over TCP, and not by shared memory or UCX. `cipher`: by
  /// which they are encrypted, or empty.
  struct PathInfo {
    base::TransportKind by;
    std::string why_not_shm, cipher;
  };
  std::optional<PathInfo> path_to(base::Peer peer) const;
  /// `lost` runs on the loop when a peer's memory is no longer reachable.
  void set_on_memory_lost(std::function<void(base::Peer)> lost);

  /// For every peer that was ever connected, and for this node itself.
  const std::unordered_map<base::Peer, base::Traffic>& traffic() const { return traffic_; }

  /// Counts peers whose connection ended because of the data that they sent, and strangers that did not prove to be
  /// peers.
  uint64_t refused() const;
  uint64_t turned_away() const;
  /// See TcpTransport::certificate_expires().
  std::optional<int64_t> certificate_expires() const;

  void dial(const std::string& address) override;
  void send(base::Peer to, const base::Frame& frame) override;
  void close(base::Peer peer) override;

 private:
  class Tap;
  class ShmTap;
  /// How a peer is reached.
  struct Path {
    transport::Transport* base = nullptr;  // the transport that connected it; reports the peer's end
    bool shm = false;
    std::string address;       // by `base`
    base::Traffic* traffic = nullptr;
    std::string why_not_shm;
    bool observer = false;     // all observers share one count of traffic
  };

  Router(transport::Loop& loop, base::Peer self, base::TraceRing& trace);
  transport::Transport& transport_to(const std::string& address) const;
  base::TransportKind kind_of(const transport::Transport& transport, base::Peer peer) const;
  std::string why_not(const Path& path, base::Peer peer) const;
  base::Status make_tcp(const Settings& settings, Fencing fencing);
  base::Status make_mpi(const Settings& settings, MpiJob job);
  void make_shm(const Settings& settings);
  void arrived(base::TransportKind by, base::Peer from, size_t bytes);
  void send_by(transport::Transport& transport, base::Peer to, const base::Frame& frame);
  void listen_in_shm();
  void base_connected(transport::Transport& transport, base::Peer peer, const std::string& address);
  void observer_came(transport::Transport& transport, base::Peer peer);
  void base_lost(base::Peer peer, const base::Status& why);
  void shm_connected(base::Peer peer);
  void shm_dial_failed(const std::string& address, const base::Status& why);
  void shm_failed(const base::Status& why);
  void shm_lost(base::Peer peer, const base::Status& why);

  transport::Loop& loop_;
  const base::Peer self_;
  base::TraceRing& trace_;
  bool lossy_ = false;
  bool listens_in_shm_ = false, told_of_shm_ = false;
  std::unique_ptr<transport::Transport> inproc_, tcp_, shm_;
  transport::TcpTransport* tcp_transport_ = nullptr;  // tcp_, or the transport that it wraps
  transport::FabricTransport* fabric_transport_ = nullptr;  // around tcp_transport_, or null
  transport::JobTransport* job_transport_ = nullptr;        // tcp_, or the transport that it wraps: then tcp_transport_ is null
  transport::ShmTransport* shm_transport_ = nullptr;  // likewise for shm_
  std::string choice_;
  std::function<void(base::Peer)> on_memory_lost_;
  base::LinkEvents* events_ = nullptr;
  std::vector<std::unique_ptr<base::LinkEvents>> taps_;
  std::unordered_map<base::Peer, Path> paths_;
  std::unordered_map<base::Peer, base::Traffic> traffic_;
  base::Traffic observers_;
  base::Peer last_from_ = base::kNobody;           // most messages come several in a row from one peer
  base::Traffic* last_from_traffic_ = nullptr;
  size_t last_bytes_ = 0;  // of the message being delivered
  uint64_t refused_ = 0;
};

}  // namespace mv::runtime
