#include "runtime/router.hpp"

#include "base/log.hpp"
#include "transport/fabric/fabric_transport.hpp"
#include "transport/fabric/job_transport.hpp"
#include "transport/faulty/faulty.hpp"
#include "transport/inproc/inproc.hpp"
#include "transport/tcp/tcp.hpp"
#include "wire/frame.hpp"

namespace mv::runtime {

namespace {

/// The size of a frame as its receiver counts it.
size_t bytes_of(const base::Frame& frame) { return frame.head.size() + (frame.tail ? wire::padded(frame.tail->size()) : 0); }

base::Flow& flow(base::Traffic::ByTransport& flows, base::TransportKind by) { return flows[static_cast<size_t>(by)]; }

}  // namespace

namespace {
/// See TraceEvent::seq. Heartbeats have no number in their stream, but a question or an answer, so that the trace has both
/// ends of them, also on quiet connections: clocks are compared by them.
uint64_t number_of(const wire::Message& message) {
  const auto* ping = message.body_as_Ping();
  if (ping == nullptr) return message.seq();
  return ping->asks() != 0 ? 2 * ping->asks() : ping->answers() != 0 ? 2 * ping->answers() + 1 : 0;
}

/// See TraceEvent::table.
uint16_t table_of(const wire::Message& message) {
  const auto* change = message.body_as_Change();
  const auto* get = message.body_as_Get();
  const uint32_t number = change != nullptr ? change->table() : get != nullptr ? get->table() : UINT16_MAX;
  return number < UINT16_MAX ? static_cast<uint16_t>(number + 1) : 0;
}
}  // namespace

/// Records which transport the events of a peer come by, and passes them on.
class Router::Tap : public base::LinkEvents {
 public:
  Tap(Router& router, transport::Transport& transport, base::LinkEvents& events) : router_(router), transport_(transport), events_(events) {}

  void on_connected(base::Peer peer, const std::string& address) override { router_.base_connected(transport_, peer, address); }
  void on_observer(base::Peer peer) override { router_.observer_came(transport_, peer); }
  void on_dial_failed(const std::string& address, const base::Status& why) override { events_.on_dial_failed(address, why); }
  void on_lost(base::Peer peer, const base::Status& why) override { router_.base_lost(peer, why); }
  void on_part(base::Peer from) override { events_.on_part(from); }
  void on_arrived(base::Peer from, size_t bytes) override { router_.arrived(router_.kind_of(transport_, from), from, bytes); }
  void on_message(base::Peer from, const wire::Message& message, std::span<const std::byte> payload) override {
    if (!router_.trace_.on()) return events_.on_message(from, message, payload);
    base::TraceEvent event = event_of(from, message);
    router_.trace_.set_handled(from);
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
    router_.trace_.set_handled(from);
    events_.on_payload(from, message, sink);
    note(event);
  }

 protected:
  Router& router_;

 private:
  base::TraceEvent event_of(base::Peer from, const wire::Message& message) const {
    return {router_.trace_.ticks(),        0, from, number_of(message), static_cast<uint32_t>(router_.last_bytes_), base::TraceKind::kReceived,
            static_cast<uint8_t>(message.body_type()), table_of(message)};
  }
  void note(base::TraceEvent& event) {
    router_.trace_.set_handled(base::kNobody);
    event.end = router_.trace_.ticks();
    router_.trace_.note(event);
  }

  transport::Transport& transport_;
  base::LinkEvents& events_;
  std::unordered_map<base::Peer, uint64_t> began_;  // ticks of the headers whose payloads are arriving
};

/// Likewise for shared memory, where a new or a lost connection only changes the path.
class Router::ShmTap final : public Tap {
 public:
  using Tap::Tap;
  void on_connected(base::Peer peer, const std::string&) override { router_.shm_connected(peer); }
  void on_dial_failed(const std::string& address, const base::Status& why) override { router_.shm_dial_failed(address, why); }
  void on_lost(base::Peer peer, const base::Status& why) override { router_.shm_lost(peer, why); }
};

base::Result<std::unique_ptr<Router>> Router::make(transport::Loop& loop, const Settings& settings, base::Peer self, base::TraceRing& trace,
                                                   Fencing fencing, std::optional<MpiJob> job) {
  if (!loop.ready().ok()) return loop.ready();
  std::unique_ptr<Router> router(new Router(loop, self, trace));
  router->inproc_ = std::make_unique<transport::InprocTransport>(loop, self);
  const bool alone = settings.nodes == 1;
  if (settings.transport == "inproc" || (alone && settings.listen_fd < 0)) return router;  // alone, but observable under `polyverso run`
  base::Status status = job ? router->make_mpi(settings, std::move(*job)) : router->make_tcp(settings, fencing);
  if (!status.ok()) return status;
  if (settings.faults.empty()) return router;
  const auto faults = transport::parse_faults(settings.faults);
  if (!faults.ok()) return faults.status();
  router->lossy_ = true;
  for (auto* transport : {&router->tcp_, &router->shm_})
    if (*transport != nullptr) *transport = std::make_unique<transport::FaultyTransport>(loop, std::move(*transport), faults.value());
  return router;
}

base::Status Router::make_mpi(const Settings& settings, MpiJob job) {
  choice_ = std::move(job.reason);
  transport::JobOptions options;
  options.self = self_;
  options.secret = settings.secret;
  auto transport = std::make_unique<transport::JobTransport>(loop_, std::move(options), std::move(job.fabric));
  if (!transport->ok()) return base::error(MV_ESYSTEM, "can't watch the timer that polls MPI");
  job_transport_ = transport.get();
  tcp_ = std::move(transport);
  return {};
}

/// TCP or, around it, UCX; and shared memory.
base::Status Router::make_tcp(const Settings& settings, Fencing fencing) {
  transport::TcpOptions options;
  options.self = self_;
  options.secret = settings.secret;
  options.fences_lost = fencing == Fencing::kLost;
  options.tls = settings.tls_settings();
  const bool alone = settings.nodes == 1, of_gossip = fencing == Fencing::kClosed;
  const TransportChoice choice = choose_transports(settings);
  choice_ = choice.reason;
  if (choice.ucx && !alone && !of_gossip) {
    auto fabric = open_ucx(settings);
    if (!fabric.ok() && settings.transport == "ucx") return fabric.status();
    if (fabric.ok()) {
      auto transport = std::make_unique<transport::FabricTransport>(loop_, options, std::move(fabric).value());
      if (!transport->ok()) return base::error(MV_ESYSTEM, "can't watch UCX's descriptor");
      fabric_transport_ = transport.get();
      tcp_transport_ = &transport->tcp();
      tcp_ = std::move(transport);
      if (fabric_transport_->can_get()) choice_ += "; gets of dense tables by ucp_get (POLYVERSO_UCX_GETS=yes)";
    } else {
      choice_ = fmt::format("{}, but it does not work: {}", choice.reason, fabric.status().text());
      base::log_warn("{}", choice_);
    }
  }
  if (tcp_ == nullptr) {
    auto tcp = std::make_unique<transport::TcpTransport>(loop_, options);
    tcp_transport_ = tcp.get();
    tcp_ = std::move(tcp);
  }
  if (choice.shm && !alone) make_shm(settings);
  if (options.tls.mode != transport::TlsMode::kPsk && options.tls.mode != transport::TlsMode::kMutual) return {};
  return tcp_transport_->prepare_tls();
}

void Router::make_shm(const Settings& settings) {
  transport::ShmOptions shm;
  shm.self = self_;
  shm.secret = settings.secret;
  auto transport = std::make_unique<transport::ShmTransport>(loop_, std::move(shm));
  shm_transport_ = transport.get();
  shm_ = std::move(transport);
  shm_transport_->set_admission([this](base::Peer peer) {
    const auto path = paths_.find(peer);
    return path != paths_.end() && !path->second.observer;
  });
}

Router::Router(transport::Loop& loop, base::Peer self, base::TraceRing& trace) : loop_(loop), self_(self), trace_(trace) { traffic_[self]; }

Router::~Router() {
  for (transport::Transport* transport : {inproc_.get(), tcp_.get(), shm_.get()})
    if (transport != nullptr) loop_.remove_flusher(*transport);
}

void Router::attach(base::LinkEvents& events) {
  events_ = &events;
  for (transport::Transport* transport : {inproc_.get(), tcp_.get(), shm_.get()}) {
    if (transport == nullptr) continue;
    if (transport == shm_.get())
      taps_.push_back(std::make_unique<ShmTap>(*this, *transport, events));
    else
      taps_.push_back(std::make_unique<Tap>(*this, *transport, events));
    transport->attach(*taps_.back());
    loop_.add_flusher(*transport);
  }
}

transport::Transport& Router::transport_to(const std::string& address) const {
  return tcp_ == nullptr || address.starts_with("inproc:") ? *inproc_ : *tcp_;
}

base::Result<std::string> Router::listen(const std::string& address) {
  listen_in_shm();
  return transport_to(address).listen(address);
}

base::Result<std::string> Router::adopt(int listening_fd) {
  if (tcp_ == nullptr) return base::error(MV_ENOSYS, "without TCP there is no socket to take over");
  listen_in_shm();
  return tcp_->adopt(listening_fd);
}

void Router::introduce_as(const std::string& address) {
  if (tcp_transport_ != nullptr) tcp_transport_->introduce_as(address);
}

void Router::listen_in_shm() {
  if (shm_ == nullptr || std::exchange(listens_in_shm_, true)) return;  // a second address concerns TCP only
  const auto bound = shm_->listen(transport::ShmTransport::address_of(self_));
  if (!bound.ok()) shm_failed(bound.status());
}

transport::FabricTransport* Router::fabric() const { return fabric_transport_ != nullptr && fabric_transport_->can_get() ? fabric_transport_ : nullptr; }

void Router::set_on_memory_lost(std::function<void(base::Peer)> lost) {
  if (fabric() != nullptr) fabric()->set_on_memory_lost(lost);
  on_memory_lost_ = std::move(lost);
}

void Router::dial(const std::string& address) { transport_to(address).dial(address); }

base::TransportKind Router::kind_of(const transport::Transport& transport, base::Peer peer) const {
  if (&transport == shm_.get()) return base::TransportKind::kShm;
  if (&transport != tcp_.get()) return base::TransportKind::kInproc;
  if (job_transport_ != nullptr) return base::TransportKind::kMpi;
  return fabric_transport_ != nullptr && fabric_transport_->carries(peer) ? base::TransportKind::kUcx : base::TransportKind::kTcp;
}

void Router::send(base::Peer to, const base::Frame& frame) {
  if (to == self_) {
    flow(traffic_[self_].sent, base::TransportKind::kInproc).count(bytes_of(frame));
    return send_by(*inproc_, to, frame);
  }
  const auto found = paths_.find(to);
  if (found == paths_.end()) return;
  const Path& path = found->second;
  transport::Transport& transport = path.shm ? *shm_ : *path.base;
  flow(path.traffic->sent, kind_of(transport, to)).count(bytes_of(frame));
  send_by(transport, to, frame);
}

void Router::send_by(transport::Transport& transport, base::Peer to, const base::Frame& frame) {
  if (!trace_.on()) return transport.send(to, frame);
  base::TraceEvent event{};
  event.begin = trace_.ticks();
  transport.send(to, frame);
  event.end = frame.tail ? trace_.ticks() : event.begin;  // a small frame is not worth reading the clock again
  const auto& message = *flatbuffers::GetRoot<wire::Message>(frame.head.data() + wire::kPrefixBytes);
  event.peer = to;
  event.seq = number_of(message);
  event.bytes = static_cast<uint32_t>(bytes_of(frame));
  event.kind = base::TraceKind::kSent;
  event.what = static_cast<uint8_t>(message.body_type());
  trace_.note(event);
}

void Router::arrived(base::TransportKind by, base::Peer from, size_t bytes) {
  if (from != last_from_) {
    last_from_ = from;
    const auto path = paths_.find(from);
    // The pointer stays valid: nodes of the map don't move, and none is erased.
    last_from_traffic_ = path != paths_.end() && path->second.observer ? &observers_ : &traffic_[from];
  }
  flow(last_from_traffic_->received, by).count(bytes);
  last_bytes_ = bytes;
}

std::optional<Router::PathInfo> Router::path_to(base::Peer peer) const {
  const auto found = paths_.find(peer);
  if (found == paths_.end()) return std::nullopt;
  const Path& path = found->second;
  if (path.shm) return PathInfo{base::TransportKind::kShm, "", ""};
  const base::TransportKind by = kind_of(*path.base, peer);
  const std::string cipher = by == base::TransportKind::kTcp ? tcp_transport_->cipher_of(peer) : "";
  return PathInfo{by, by == base::TransportKind::kTcp ? why_not(path, peer) : "", cipher};
}

std::string Router::why_not(const Path& path, base::Peer peer) const {
  if (fabric_transport_ != nullptr) return "not by UCX: " + fabric_transport_->why_not(peer);
  return shm_ == nullptr ? "transport=tcp" : path.why_not_shm;
}

uint64_t Router::refused() const { return refused_; }
uint64_t Router::turned_away() const {
  if (job_transport_ != nullptr) return job_transport_->turned_away();
  return tcp_transport_ != nullptr ? tcp_transport_->turned_away() : 0;
}

std::optional<int64_t> Router::certificate_expires() const { return tcp_transport_ != nullptr ? tcp_transport_->certificate_expires() : std::nullopt; }

void Router::close(base::Peer peer) {
  const auto path = paths_.find(peer);
  if (path == paths_.end()) return;
  transport::Transport* base = path->second.base;
  paths_.erase(path);
  if (shm_ != nullptr) shm_->close(peer);
  if (on_memory_lost_) on_memory_lost_(peer);
  base->close(peer);
}

void Router::stop(std::function<void()> stopped) {
  inproc_->stop([this, stopped = std::move(stopped)] {
    if (tcp_ == nullptr) return stopped();
    // To the peers, the end of TCP is the end of this node. They must get the last messages in
    // shared memory before that.
    if (shm_ == nullptr) return tcp_->stop(stopped);
    shm_->stop([this, stopped] { tcp_->stop(stopped); });
  });
}

// ------------------------------------------------------------ changes of path

void Router::base_connected(transport::Transport& transport, base::Peer peer, const std::string& address) {
  Path& path = paths_[peer];
  const bool is_new = path.base == nullptr;
  path.base = &transport;
  path.address = address;
  path.traffic = &traffic_[peer];
  if (!is_new) ++path.traffic->reconnections;
  events_->on_connected(peer, address);
  if (!is_new || shm_ == nullptr || &transport != tcp_.get()) return;
  shm_transport_->admit(peer);
  // One of the two dials. If nothing answers, the peer is on another machine.
  if (self_ > peer) shm_->dial(transport::ShmTransport::address_of(peer));
}

void Router::observer_came(transport::Transport& transport, base::Peer peer) {
  Path& path = paths_[peer];
  path.base = &transport;
  path.traffic = &observers_;
  path.observer = true;
  events_->on_observer(peer);
}

void Router::base_lost(base::Peer peer, const base::Status& why) {
  if (why.code() == MV_EPROTOCOL) ++refused_;
  if (shm_ != nullptr) {
    shm_transport_->drain(peer);  // messages sent before the end
    shm_->close(peer);
    if (on_memory_lost_) on_memory_lost_(peer);
  }
  paths_.erase(peer);
  events_->on_lost(peer, why);
}

void Router::shm_connected(base::Peer peer) {
  const auto path = paths_.find(peer);
  if (path == paths_.end()) return shm_->close(peer);
  path->second.shm = true;
  base::log_debug("{} ({:016x}) is on this machine: messages go through shared memory", path->second.address, peer);
  // Messages on their way over TCP may now be overtaken, so the engines ask what the peer has received.
  events_->on_connected(peer, path->second.address);
}

void Router::shm_dial_failed(const std::string& address, const base::Status& why) {
  for (auto& [peer, path] : paths_)
    if (transport::ShmTransport::address_of(peer) == address) path.why_not_shm = why.text();
  shm_failed(why);
}

void Router::shm_failed(const base::Status& why) {
  const bool elsewhere = why.code() == MV_EUNREACHABLE || why.code() == MV_EPEERLOST;
  if (elsewhere || std::exchange(told_of_shm_, true)) return base::log_debug("{}", why.text());
  base::log_warn("no shared memory with other processes of this machine, using TCP instead: {}", why.text());
}

void Router::shm_lost(base::Peer peer, const base::Status& why) {
  const auto path = paths_.find(peer);
  if (path == paths_.end()) return;
  path->second.shm = false;
  path->second.why_not_shm = why.text();
  ++path->second.traffic->reconnections;
  if (on_memory_lost_) on_memory_lost_(peer);
  if (why.code() == MV_EPEERLOST) return;  // it said goodbye, and will do so over TCP
  if (why.code() == MV_EPROTOCOL) {
    ++refused_;
    shm_failed(why);
  }
  events_->on_connected(peer, path->second.address);
}

}  // namespace mv::runtime
