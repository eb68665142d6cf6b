#include "runtime/router.hpp"

#include "base/log.hpp"
#include "transport/faulty/faulty.hpp"
#include "transport/inproc/inproc.hpp"
#include "transport/tcp/tcp.hpp"
#include "wire/frame.hpp"

namespace mv::runtime {

namespace {

/// As the receiver counts it.
size_t bytes_of(const base::Frame& frame) { return frame.head.size() + (frame.tail ? wire::padded(frame.tail->size()) : 0); }

base::Flow& flow(base::Traffic::ByRoad& flows, base::RoadKind by) { return flows[static_cast<size_t>(by)]; }

}  // namespace

/// Notes by which road a peer came, and passes everything on.
class Router::Tap : public base::LinkEvents {
 public:
  Tap(Router& router, transport::Road& road, base::LinkEvents& events) : router_(router), road_(road), kind_(router.kind_of(road)), events_(events) {}

  void on_connected(base::Peer peer, const std::string& address) override { router_.base_connected(road_, peer, address); }
  void on_observer(base::Peer peer) override { router_.observer_came(road_, peer); }
  void on_dial_failed(const std::string& address, const base::Status& why) override { events_.on_dial_failed(address, why); }
  void on_lost(base::Peer peer, const base::Status& why) override { router_.base_lost(peer, why); }
  void on_arrived(base::Peer from, size_t bytes) override { router_.arrived(kind_, from, bytes); }
  void on_message(base::Peer from, const wire::Message& message, std::span<const std::byte> payload) override {
    if (!router_.trace_.on()) return events_.on_message(from, message, payload);
    base::TraceEvent event = event_of(from, message);
    events_.on_message(from, message, payload);
    note(event);
  }
  base::SinkRef on_header(base::Peer from, const wire::Message& message, size_t bytes) override {
    if (router_.trace_.on()) began_[from] = router_.trace_.ticks();
    return events_.on_header(from, message, bytes);
  }
  void on_payload(base::Peer from, const wire::Message& message, base::Sink& sink) override {
    if (!router_.trace_.on()) return events_.on_payload(from, message, sink);
    base::TraceEvent event = event_of(from, message);
    if (const auto began = began_.extract(from)) event.begin = began.mapped();
    events_.on_payload(from, message, sink);
    note(event);
  }

 protected:
  Router& router_;

 private:
  base::TraceEvent event_of(base::Peer from, const wire::Message& message) const {
    return {router_.trace_.ticks(),        0, from, message.seq(), static_cast<uint32_t>(router_.last_bytes_), base::TraceKind::kReceived,
            static_cast<uint8_t>(message.body_type())};
  }
  void note(base::TraceEvent& event) {
    event.end = router_.trace_.ticks();
    router_.trace_.note(event);
  }

  transport::Road& road_;
  const base::RoadKind kind_;
  base::LinkEvents& events_;
  std::unordered_map<base::Peer, uint64_t> began_;  // ticks of the headers whose payloads are arriving
};

/// The same for shared memory, whose beginnings and ends are changes of way only.
class Router::ShmTap final : public Tap {
 public:
  using Tap::Tap;
  void on_connected(base::Peer peer, const std::string&) override { router_.shm_connected(peer); }
  void on_dial_failed(const std::string& address, const base::Status& why) override { router_.shm_dial_failed(address, why); }
  void on_lost(base::Peer peer, const base::Status& why) override { router_.shm_lost(peer, why); }
};

base::Result<std::unique_ptr<Router>> Router::make(transport::Loop& loop, const Settings& settings, base::Peer self, base::TraceRing& trace,
                                                   Fencing fencing) {
  if (!loop.ready().ok()) return loop.ready();
  std::unique_ptr<Router> router(new Router(loop, self, trace));
  router->inproc_ = std::make_unique<transport::InprocRoad>(loop, self);
  const bool alone = settings.nodes == 1;
  if (settings.io == "inproc" || (alone && settings.listen_fd < 0)) return router;  // alone, but observable under `polyverso run`
  transport::TcpOptions options;
  options.self = self;
  options.secret = settings.secret;
  options.fences_lost = fencing == Fencing::kLost;
  auto tcp = std::make_unique<transport::TcpRoad>(loop, options);
  router->tcp_road_ = tcp.get();
  router->tcp_ = std::move(tcp);
  if (settings.io != "tcp" && !alone) {
    transport::ShmOptions shm;
    shm.self = self;
    shm.secret = settings.secret;
    auto road = std::make_unique<transport::ShmRoad>(loop, std::move(shm));
    router->shm_road_ = road.get();
    router->shm_ = std::move(road);
    router->shm_road_->set_admission([r = router.get()](base::Peer peer) {
      const auto way = r->ways_.find(peer);
      return way != r->ways_.end() && !way->second.observer;
    });
  }
  if (settings.faults.empty()) return router;
  const auto faults = transport::parse_faults(settings.faults);
  if (!faults.ok()) return faults.status();
  router->lossy_ = true;
  for (auto* road : {&router->tcp_, &router->shm_})
    if (*road != nullptr) *road = std::make_unique<transport::FaultyRoad>(loop, std::move(*road), faults.value());
  return router;
}

Router::Router(transport::Loop& loop, base::Peer self, base::TraceRing& trace) : loop_(loop), self_(self), trace_(trace) { traffic_[self]; }

Router::~Router() {
  for (transport::Road* road : {inproc_.get(), tcp_.get(), shm_.get()})
    if (road != nullptr) loop_.remove_flusher(*road);
}

void Router::attach(base::LinkEvents& events) {
  events_ = &events;
  for (transport::Road* road : {inproc_.get(), tcp_.get(), shm_.get()}) {
    if (road == nullptr) continue;
    if (road == shm_.get())
      taps_.push_back(std::make_unique<ShmTap>(*this, *road, events));
    else
      taps_.push_back(std::make_unique<Tap>(*this, *road, events));
    road->attach(*taps_.back());
    loop_.add_flusher(*road);
  }
}

transport::Road& Router::road_to(const std::string& address) const {
  return tcp_ == nullptr || address.starts_with("inproc:") ? *inproc_ : *tcp_;
}

base::Result<std::string> Router::listen(const std::string& address) {
  listen_in_shm();
  return road_to(address).listen(address);
}

base::Result<std::string> Router::adopt(int listening_fd) {
  if (tcp_ == nullptr) return base::error(MV_ENOSYS, "no TCP, no socket to take over");
  listen_in_shm();
  return tcp_->adopt(listening_fd);
}

void Router::introduce_as(const std::string& address) {
  if (tcp_road_ != nullptr) tcp_road_->introduce_as(address);
}

void Router::listen_in_shm() {
  if (shm_ == nullptr || std::exchange(listens_in_shm_, true)) return;  // a second address is another one of TCP's
  const auto bound = shm_->listen(transport::ShmRoad::address_of(self_));
  if (!bound.ok()) shm_failed(bound.status());
}

void Router::dial(const std::string& address) { road_to(address).dial(address); }

base::RoadKind Router::kind_of(const transport::Road& road) const {
  return &road == shm_.get() ? base::RoadKind::kShm : &road == tcp_.get() ? base::RoadKind::kTcp : base::RoadKind::kInproc;
}

void Router::send(base::Peer to, const base::Frame& frame) {
  if (to == self_) {
    flow(traffic_[self_].sent, base::RoadKind::kInproc).count(bytes_of(frame));
    return send_by(*inproc_, to, frame);
  }
  const auto found = ways_.find(to);
  if (found == ways_.end()) return;
  const Way& way = found->second;
  transport::Road& road = way.shm ? *shm_ : *way.base;
  flow(way.traffic->sent, kind_of(road)).count(bytes_of(frame));
  send_by(road, to, frame);
}

void Router::send_by(transport::Road& road, base::Peer to, const base::Frame& frame) {
  if (!trace_.on()) return road.send(to, frame);
  base::TraceEvent event{};
  event.begin = trace_.ticks();
  road.send(to, frame);
  event.end = frame.tail ? trace_.ticks() : event.begin;  // a small one takes no time that is worth another look at the clock
  const auto& message = *flatbuffers::GetRoot<wire::Message>(frame.head.data() + wire::kPrefixBytes);
  event.peer = to;
  event.seq = message.seq();
  event.bytes = static_cast<uint32_t>(bytes_of(frame));
  event.kind = base::TraceKind::kSent;
  event.what = static_cast<uint8_t>(message.body_type());
  trace_.note(event);
}

void Router::arrived(base::RoadKind by, base::Peer from, size_t bytes) {
  if (from != last_from_) {
    last_from_ = from;
    const auto way = ways_.find(from);
    // Stays where it is: nodes of the map don't move, and none is erased.
    last_from_traffic_ = way != ways_.end() && way->second.observer ? &observers_ : &traffic_[from];
  }
  flow(last_from_traffic_->received, by).count(bytes);
  last_bytes_ = bytes;
}

std::optional<Router::Reach> Router::reach(base::Peer peer) const {
  const auto found = ways_.find(peer);
  if (found == ways_.end()) return std::nullopt;
  const Way& way = found->second;
  if (way.shm) return Reach{base::RoadKind::kShm, ""};
  return Reach{kind_of(*way.base), shm_ == nullptr ? "io=tcp" : way.why_not_shm};
}

uint64_t Router::refused() const { return refused_; }
uint64_t Router::turned_away() const { return tcp_road_ != nullptr ? tcp_road_->turned_away() : 0; }

void Router::close(base::Peer peer) {
  const auto way = ways_.find(peer);
  if (way == ways_.end()) return;
  transport::Road* base = way->second.base;
  ways_.erase(way);
  if (shm_ != nullptr) shm_->close(peer);
  if (on_shm_lost_) on_shm_lost_(peer);
  base->close(peer);
}

void Router::stop(std::function<void()> stopped) {
  inproc_->stop([this, stopped = std::move(stopped)] {
    if (tcp_ == nullptr) return stopped();
    // The peers hear the last messages in shared memory before the end of TCP, which is the end of this node to them.
    if (shm_ == nullptr) return tcp_->stop(stopped);
    shm_->stop([this, stopped] { tcp_->stop(stopped); });
  });
}

// ------------------------------------------------------------ changes of way

void Router::base_connected(transport::Road& road, base::Peer peer, const std::string& address) {
  Way& way = ways_[peer];
  const bool is_new = way.base == nullptr;
  way.base = &road;
  way.address = address;
  way.traffic = &traffic_[peer];
  if (!is_new) ++way.traffic->reconnections;
  events_->on_connected(peer, address);
  if (!is_new || shm_ == nullptr || &road != tcp_.get()) return;
  shm_road_->admit(peer);
  // One of the two dials. If nobody answers, the peer is on another machine.
  if (self_ > peer) shm_->dial(transport::ShmRoad::address_of(peer));
}

void Router::observer_came(transport::Road& road, base::Peer peer) {
  Way& way = ways_[peer];
  way.base = &road;
  way.traffic = &observers_;
  way.observer = true;
  events_->on_observer(peer);
}

void Router::base_lost(base::Peer peer, const base::Status& why) {
  if (why.code() == MV_EPROTOCOL) ++refused_;
  if (shm_ != nullptr) {
    shm_road_->drain(peer);  // what was sent before the end
    shm_->close(peer);
    if (on_shm_lost_) on_shm_lost_(peer);
  }
  ways_.erase(peer);
  events_->on_lost(peer, why);
}

void Router::shm_connected(base::Peer peer) {
  const auto way = ways_.find(peer);
  if (way == ways_.end()) return shm_->close(peer);
  way->second.shm = true;
  base::log_debug("{} ({:016x}) is on this machine: messages go through shared memory", way->second.address, peer);
  // Whatever is under way over TCP may now be overtaken: the engines ask what the peer has.
  events_->on_connected(peer, way->second.address);
}

void Router::shm_dial_failed(const std::string& address, const base::Status& why) {
  for (auto& [peer, way] : ways_)
    if (transport::ShmRoad::address_of(peer) == address) way.why_not_shm = why.text();
  shm_failed(why);
}

void Router::shm_failed(const base::Status& why) {
  const bool elsewhere = why.code() == MV_EUNREACHABLE || why.code() == MV_EPEERLOST;
  if (elsewhere || std::exchange(told_of_shm_, true)) return base::log_debug("{}", why.text());
  base::log_warn("no shared memory with other processes of this machine, TCP instead: {}", why.text());
}

void Router::shm_lost(base::Peer peer, const base::Status& why) {
  const auto way = ways_.find(peer);
  if (way == ways_.end()) return;
  way->second.shm = false;
  way->second.why_not_shm = why.text();
  ++way->second.traffic->reconnections;
  if (on_shm_lost_) on_shm_lost_(peer);
  if (why.code() == MV_EPEERLOST) return;  // it said goodbye, and will over TCP
  if (why.code() == MV_EPROTOCOL) {
    ++refused_;
    shm_failed(why);
  }
  events_->on_connected(peer, way->second.address);
}

}  // namespace mv::runtime
