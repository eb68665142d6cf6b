#include "node/router.hpp"

#include "io/faulty/faulty.hpp"
#include "io/inproc/inproc.hpp"
#include "io/tcp/tcp.hpp"

namespace mv::node {

/// Notes by which road a peer came, and passes everything on.
class Router::Tap final : public base::LinkEvents {
 public:
  Tap(Router& router, io::Road& road, base::LinkEvents& events) : router_(router), road_(road), events_(events) {}

  void on_connected(base::Peer peer, const std::string& address) override {
    router_.ways_[peer] = &road_;
    events_.on_connected(peer, address);
  }
  void on_dial_failed(const std::string& address, const base::Status& why) override { events_.on_dial_failed(address, why); }
  void on_lost(base::Peer peer, const base::Status& why) override {
    router_.ways_.erase(peer);
    events_.on_lost(peer, why);
  }
  void on_message(base::Peer from, const wire::Message& message, std::span<const std::byte> payload) override {
    events_.on_message(from, message, payload);
  }
  base::SinkRef on_header(base::Peer from, const wire::Message& message, size_t bytes) override {
    return events_.on_header(from, message, bytes);
  }
  void on_payload(base::Peer from, const wire::Message& message, base::Sink& sink) override { events_.on_payload(from, message, sink); }

 private:
  Router& router_;
  io::Road& road_;
  base::LinkEvents& events_;
};

base::Result<std::unique_ptr<Router>> Router::make(io::Loop& loop, const Settings& settings, base::Peer self) {
  std::unique_ptr<Router> router(new Router(loop, self));
  router->inproc_ = std::make_unique<io::InprocRoad>(loop, self);
  if (settings.io == "inproc" || settings.nodes == 1) return router;
  io::TcpOptions options;
  options.self = self;
  options.secret = settings.secret;
  router->tcp_ = std::make_unique<io::TcpRoad>(loop, options);
  if (settings.faults.empty()) return router;
  const auto faults = io::parse_faults(settings.faults);
  if (!faults.ok()) return faults.status();
  router->lossy_ = true;
  router->tcp_ = std::make_unique<io::FaultyRoad>(loop, std::move(router->tcp_), faults.value());
  return router;
}

Router::Router(io::Loop& loop, base::Peer self) : loop_(loop), self_(self) {}

Router::~Router() {
  loop_.remove_flusher(*inproc_);
  if (tcp_ != nullptr) loop_.remove_flusher(*tcp_);
}

void Router::attach(base::LinkEvents& events) {
  for (io::Road* road : {inproc_.get(), tcp_.get()}) {
    if (road == nullptr) continue;
    taps_.push_back(std::make_unique<Tap>(*this, *road, events));
    road->attach(*taps_.back());
    loop_.add_flusher(*road);
  }
}

io::Road& Router::road_to(const std::string& address) const {
  return tcp_ == nullptr || address.starts_with("inproc:") ? *inproc_ : *tcp_;
}

base::Result<std::string> Router::listen(const std::string& address) { return road_to(address).listen(address); }

base::Result<std::string> Router::adopt(int listening_fd) {
  if (tcp_ == nullptr) return base::error(MV_ENOSYS, "no TCP, no socket to take over");
  return tcp_->adopt(listening_fd);
}

void Router::dial(const std::string& address) { road_to(address).dial(address); }

void Router::send(base::Peer to, const base::Frame& frame) {
  if (to == self_) return inproc_->send(to, frame);
  const auto way = ways_.find(to);
  if (way != ways_.end()) way->second->send(to, frame);
}

void Router::close(base::Peer peer) {
  const auto way = ways_.find(peer);
  if (way == ways_.end()) return;
  way->second->close(peer);
  ways_.erase(way);
}

void Router::stop(std::function<void()> stopped) {
  inproc_->stop([this, stopped = std::move(stopped)] {
    if (tcp_ == nullptr) return stopped();
    tcp_->stop(stopped);
  });
}

}  // namespace mv::node
