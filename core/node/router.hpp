#pragma once
// The roads of a node, as one Link: which peer is reached by which.

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "io/road.hpp"
#include "node/settings.hpp"

namespace mv::node {

/// To itself and to "inproc:" addresses within the process, to others over TCP. With faults (Settings::faults) everything but a
/// node's way to itself goes through io/faulty. Loop thread only, but for make() and listen(), before the loop starts.
class Router final : public base::Link {
 public:
  static base::Result<std::unique_ptr<Router>> make(io::Loop& loop, const Settings& settings, base::Peer self);
  ~Router() override;

  void attach(base::LinkEvents& events);
  base::Result<std::string> listen(const std::string& address);
  base::Result<std::string> adopt(int listening_fd);
  /// Says goodbye to all; `stopped` runs on the loop when everything is sent and closed.
  void stop(std::function<void()> stopped);
  /// True if messages may get lost without the connection's breaking.
  bool lossy() const { return lossy_; }

  void dial(const std::string& address) override;
  void send(base::Peer to, const base::Frame& frame) override;
  void close(base::Peer peer) override;

 private:
  class Tap;

  Router(io::Loop& loop, base::Peer self);
  io::Road& road_to(const std::string& address) const;

  io::Loop& loop_;
  const base::Peer self_;
  bool lossy_ = false;
  std::unique_ptr<io::Road> inproc_, tcp_;
  std::vector<std::unique_ptr<Tap>> taps_;
  std::unordered_map<base::Peer, io::Road*> ways_;
};

}  // namespace mv::node
