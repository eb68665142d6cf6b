#include "api/gossip/gossip_node.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "api/gossip/gossip_status.hpp"
#include "base/log.hpp"
#include "math/average.hpp"
#include "runtime/random.hpp"
#include "tensor/dtype.hpp"

namespace mv::api {

namespace {
/// The number by which peers request the memory of the snapshots.
constexpr uint64_t kSnapshots = 0;
/// Separates the random numbers for "whether to fetch" from those for "which peer".
constexpr uint64_t kWhether = 0x77686574'68657221;

base::Status is_closed() { return base::Status(MV_ESTATE, "this node was closed"); }
}  // namespace

GossipNode::GossipNode(gossip::Config config, FindDevice find_device) : config_(std::move(config)), find_device_(std::move(find_device)) {
  if (config_.noloco) outer_.emplace(*config_.noloco);
}

base::Result<std::unique_ptr<GossipNode>> GossipNode::open(gossip::Config config, const std::string& name, FindDevice find_device) {
  const gossip::Node* const found = config.find(name);
  if (found == nullptr) return base::error(MV_ENOTFOUND, "no node is called \"{}\"", name);
  const gossip::Node self = *found;
  std::unique_ptr<GossipNode> node(new GossipNode(std::move(config), std::move(find_device)));
  if (auto status = node->set_up(self); !status.ok()) return status;
  return node;
}

base::Status GossipNode::set_up(gossip::Node self) {
  const base::Peer life = runtime::random_peer();
  runtime::Settings settings;  // not of a cluster: only what the transports read
  settings.nodes = 0;
  settings.secret = config_.secret;
  settings.tls = config_.tls;
  settings.tls_cert = config_.tls_cert;
  settings.tls_key = config_.tls_key;
  settings.tls_ca = config_.tls_ca;
  if (config_.tcp_only) settings.transport = "tcp";
  auto router = runtime::Router::make(loop_, settings, life, trace_, runtime::Router::Fencing::kClosed);
  if (!router.ok()) return router.status();
  router_ = std::move(router).value();
  auto address = router_->listen(self.address());
  if (!address.ok()) return address.status();
  if (self.port == 0) {  // the port that the system chose
    const std::string& text = address.value();
    self.port = static_cast<uint32_t>(std::stoul(text.substr(text.rfind(':') + 1)));
  }
  self_ = self;
  router_->introduce_as(self_.address());

  set_up_engine(life);
  for (const gossip::Node& node : config_.nodes)
    if (node.name != self_.name)
      if (auto status = engine_->add_peer(node); !status.ok()) return status;

  loop_.add_flusher(*this);
  router_->attach(*engine_);
  if (router_->shm() != nullptr) {
    router_->shm()->serve([this](base::Peer, uint64_t number) { return number == kSnapshots ? publisher_.memory() : nullptr; });
    router_->set_on_memory_lost([this](base::Peer peer) { mappings_.erase(peer); });
  }
  told_.name = self_.name;
  told_.address = self_.address();
  loop_.on_breakdown([this](const base::Status&) { loop_.shut_down_sockets(); });
  if (auto status = loop_.start(); !status.ok()) return status;
  loop_runs_ = true;
  return serve_metrics();
}

void GossipNode::set_up_engine(base::Peer life) {
  const uint64_t seed = config_.seed.value_or(life);
  rng_ = gossip::Rng(seed ^ kWhether, self_.name);
  gossip::Gossip::Hooks hooks;
  hooks.on_done = [this] { done_ = true; };
  hooks.mapped = [this](base::Peer peer) { return mapped(peer); };
  hooks.on_more = [this] { loop_.post([this] { engine_->go_on(); }); };
  hooks.state_text = [this](bool json) { return json ? json_of(state_now()) : text_of(state_now()); };
  engine_ = std::make_unique<gossip::Gossip>(loop_, *router_, config_, self_, seed, publisher_, std::move(hooks));
}

base::Status GossipNode::serve_metrics() {
  if (!self_.metrics) return {};
  const gossip::Node where{"metrics", self_.host, *self_.metrics, {}};
  const auto answer = [this](const std::string& path) -> transport::HttpAnswer {
    if (path != "/metrics") return {404, "text/plain; charset=utf-8", "not found; try /metrics\n"};
    auto text = metrics();
    if (!text.ok()) return {503, "text/plain; charset=utf-8", text.status().text() + "\n"};
    return {200, "text/plain; version=0.0.4; charset=utf-8", std::move(text).value()};
  };
  auto server = transport::serve_http(where.address(), answer, tls_of(config_));
  if (!server.ok()) return base::error(server.status().code(), "metrics of node \"{}\": {}", self_.name, server.status().text());
  http_ = std::move(server).value();
  const Lock lock(figures_);
  told_.metrics = http_->address();
  return {};
}

/// Call before anything that metrics() reads is destroyed. Not under closing_, which its answers lock.
void GossipNode::stop_metrics() {
  if (http_ != nullptr) http_->stop();
}

void GossipNode::abandon_after_fork() noexcept {
  if (http_ != nullptr) http_->abandon_after_fork();
  loop_.abandon_after_fork();
}

void GossipNode::close() {
  stop_metrics();
  const Lock lock(closing_);
  if (closed_.exchange(true)) return;
  if (loop_runs_) {
    std::atomic<bool> stopped{false};
    loop_.post([&] { router_->stop([&] { stopped = true; }); });
    while (loop_.drive_until([&] { return stopped.load(); }, base::kNever) == transport::Driven::kInterrupted) {
    }
  }
  loop_.stop();
}

GossipNode::~GossipNode() {
  close();
  loop_.remove_flusher(*this);
  router_.reset();  // before the objects that it reports to
}

void GossipNode::flush() { rearm(); }

void GossipNode::rearm() {
  const base::Nanos next = engine_->next_deadline();
  if (next == armed_) return;
  armed_ = next;
  loop_.set_timer(next, [this] {
    armed_ = base::kNever;
    engine_->tick();
    rearm();
  });
}

/// Why nothing runs on the loop any more.
base::Status GossipNode::ended() const { return loop_.defect() != nullptr ? *loop_.defect() : is_closed(); }

/// Runs `work` on the loop and waits for it, even through signals, because it is short.
base::Status GossipNode::on_loop(const std::function<base::Status()>& work) {
  const Lock lock(closing_);
  if (closed_ || loop_.defect() != nullptr) return ended();
  base::Status status;
  std::atomic<bool> ran{false};
  loop_.post([&] {
    status = work();
    ran = true;
  });
  while (loop_.drive_until([&] { return ran.load(); }, base::kNever) == transport::Driven::kInterrupted) {
  }
  return ran ? status : ended();
}

// ------------------------------------------------------------ the model

base::Status GossipNode::add(const void* data, const gossip::ArraySpec& part) {
  const Lock lock(model_);
  const base::Status status = add_to_snapshot(data, part);
  if (!status.ok()) {
    drop();
    return status;
  }
  for (size_t parts = is_slow(part.dtype) ? 2 : 1; parts > 0; --parts) adding_.push_back(part);
  ++added_;
  return {};
}

base::Status GossipNode::add_to_snapshot(const void* data, const gossip::ArraySpec& part) {
  Staging staging;
  if (tensor::dtype_bytes(part.dtype) > 0 && gossip::layout_bytes({&part, 1}).ok()) {  // others are refused below
    const auto device = is_slow(part.dtype) && part.count > 0 && find_device_ ? find_device_(data) : base::Result<tensor::Device*>(nullptr);
    if (!device.ok()) return device.status();
    if (device.value() != nullptr) {
      const auto added = outer_->add(publisher_, added_, *device.value(), data, part);
      if (!added.ok() || added.value()) return added.status();
    }
    const auto here = staging.stage(static_cast<const std::byte*>(data), part.bytes(), Staging::Use::kRead, find_device_);
    if (!here.ok()) return here.status();
    data = here.value();
  }
  return outer_ ? outer_->add(publisher_, added_, data, part) : publisher_.add(data, part);
}

/// Discards the arrays added so far: a caller that continues after an error begins with the first array again.
void GossipNode::drop() {
  publisher_.drop();
  if (outer_) outer_->drop();
  adding_.clear();
  added_ = 0;
}

base::Status GossipNode::publish(double loss) {
  const Lock lock(model_);
  if (closed_ || loop_.defect() != nullptr) return ended();
  if (!std::isfinite(loss)) {
    drop();
    return base::error(MV_ENONFINITE, "the loss is {}, not a finite number", loss);
  }
  if (adding_.empty()) return base::Status(MV_ESTATE, "nothing was added since the last snapshot");
  if (auto status = publisher_.publish(clock_ + 1, loss); !status.ok()) return status;
  if (outer_) outer_->keep();
  clock_ += 1;
  loss_ = loss;
  ++updates_;
  published_ = std::exchange(adding_, {});
  added_ = 0;
  const Lock figures(figures_);
  told_.clock = clock_;
  told_.loss = loss_;
  told_.updates = updates_;
  return {};
}

base::Status GossipNode::set_clock(double clock) {
  const Lock lock(model_);
  if (closed_ || loop_.defect() != nullptr) return ended();
  if (!std::isfinite(clock) || clock < 0) return base::error(MV_EINVAL, "the clock {} is not a finite number of at least 0", clock);
  clock_ = clock;
  const Lock figures(figures_);
  told_.clock = clock_;
  return {};
}

base::Result<bool> GossipNode::fetch_start() {
  const Lock lock(model_);
  if (closed_ || loop_.defect() != nullptr) return ended();
  if (updates_ == 0) return base::Status(MV_ESTATE, "publish first: a peer's arrays are compared with this node's");
  if (started_) return base::Status(MV_ESTATE, "a fetch is in progress: wait for it first");
  result_ = false;
  if (!rng_.chance(config_.fetch_probability)) return false;
  started_ = true;
  done_ = false;
  loop_.post([this, round = updates_ - 1, parts = published_] { engine_->fetch(round, parts); });
  return true;
}

base::Result<GossipFetched> GossipNode::fetch_wait(double loss) {
  const Lock lock(model_);
  if (!std::isfinite(loss)) return base::error(MV_ENONFINITE, "the loss is {}, not a finite number", loss);
  GossipFetched fetched;
  if (!started_) {
    fetched.why = "no fetch was started";
    return fetched;
  }
  const transport::Driven driven = closed_ ? transport::Driven::kStopped : loop_.drive_until([this] { return done_.load(); }, base::kNever);
  if (driven == transport::Driven::kInterrupted) return base::Status(MV_EINTR, "a signal interrupted the wait; the fetch continues: wait again");
  if (driven != transport::Driven::kDone) return ended();
  started_ = false;
  loss_ = loss;

  if (auto status = catch_peer(fetched); !status.ok()) return status;
  const Lock figures(figures_);
  told_.clock = clock_;
  told_.loss = loss;
  told_.averaged += fetched.peer.empty() ? 0 : 1;
  told_.factor = fetched.peer.empty() ? told_.factor : factor_;
  told_.last = fetched.peer.empty() ? fetched.why : fetched.peer;
  return fetched;
}

/// Takes over the result of the fetch.
base::Status GossipNode::catch_peer(GossipFetched& fetched) {
  const gossip::FetchResult& caught = engine_->result();
  fetched.peer = caught_from_ = caught.peer;
  fetched.why = caught.why;
  own_ = caught.own;
  own_version_ = caught.own_version;
  alone_ = caught.peer.empty();
  if (alone_ && !outer_) return {};
  std::vector<gossip::ArraySpec> own_parts;
  if (starts_from_own()) {  // the caller may have published other arrays since the fetch began
    auto own = own_->describe(own_version_);
    if (!own) return has_republished();
    own_parts = std::move(own->parts);
    own_starts_ = gossip::part_starts(own_parts);
    if (!alone_ && !gossip::parts_fit(own_parts, engine_->receive_buffer().description().parts))
      return base::Status(MV_ESTATE, "this node has published other arrays since the fetch began: fetch again");
  }
  factor_ = 0;
  if (!alone_) {
    const gossip::Description& peer = engine_->receive_buffer().description();
    const auto weight = factor_of(peer);
    if (!weight.ok()) return weight.status();
    fetched.clock = peer.clock;
    fetched.loss = peer.loss;
    fetched.factor = factor_ = weight.value();
    clock_ = gossip::mixed_clock(factor_, clock_, peer.clock);
  }
  caught_parts_ = fetched.parts = alone_ ? own_parts : engine_->receive_buffer().description().parts;
  fetched.got = result_ = true;
  next_part_ = next_array_ = 0;
  squares_ = 0;
  compared_ = 0;
  return {};
}

base::Result<double> GossipNode::factor_of(const gossip::Description& peer) const {
  if (config_.exchange == gossip::Exchange::kPull) return gossip::factor(config_.interpolation, {clock_, loss_}, {peer.clock, peer.loss});
  // From what both sides know: the exchanged snapshots.
  const auto own = own_->describe(own_version_);
  if (!own) return base::Status(MV_ESTATE, "this node has published twice since the exchange began: wait for an exchange before the next publish");
  return gossip::exchanged_factor(config_.interpolation, {own->clock, own->loss}, {peer.clock, peer.loss});
}

/// The number of the next part of the fetched snapshot, which must have this size and type.
base::Result<size_t> GossipNode::next_part(uint64_t count, mv_dtype dtype) const {
  if (!result_) return base::Status(MV_ESTATE, "nothing was fetched");
  if (next_part_ == caught_parts_.size()) return base::error(MV_ESTATE, "all {} fetched arrays have already been taken", next_array_);
  const gossip::ArraySpec& part = caught_parts_[next_part_];
  if (!part.fits({count, dtype}))
    return base::error(MV_ESHAPE, "{} was fetched as array {}, but {} was given", gossip::describe_parts({&part, 1}), next_array_,
                       gossip::describe_parts(std::array{gossip::ArraySpec{count, dtype}}));
  return next_part_;
}

/// Continues with the next array.
void GossipNode::take_part(mv_dtype dtype) {
  next_part_ += is_slow(dtype) ? 2 : 1;
  ++next_array_;
}

base::Status GossipNode::has_republished() { return {MV_ESTATE, "this node has published twice since the fetch began: average before that"}; }

base::Status GossipNode::check_own() const { return !starts_from_own() || own_->holds(own_version_) ? base::Status() : has_republished(); }

base::Result<double> GossipNode::average_part(size_t number, std::byte* data, uint64_t count, mv_dtype dtype) {
  if (is_slow(dtype)) return outer_->step(next_array_, data, {own_part(number), own_part(number + 1)}, {peer_part(number), peer_part(number + 1)});
  if (approaches())
    return math::approach_bytes(dtype, data, peer_part(number), own_part(number), count, factor_);
  return math::average_bytes(dtype, data, peer_part(number), count, factor_);
}

base::Status GossipNode::average(void* data, uint64_t count, mv_dtype dtype) {
  const Lock lock(model_);
  if (dtype == MV_RAW) return base::Status(MV_EDTYPE, "plain bytes can't be averaged: read them instead");
  if (auto status = result_ ? check_own() : base::Status(); !status.ok()) return status;
  const auto number = next_part(count, dtype);
  if (!number.ok()) return number.status();
  const auto device = find_device_ && count > 0 ? find_device_(data) : base::Result<tensor::Device*>(nullptr);
  if (!device.ok()) return device.status();
  if (device.value() != nullptr && tensor::is_floating(dtype)) {
    const auto squares = average_there(*device.value(), number.value(), data, count, dtype);
    if (squares.ok()) {
      take_part(dtype);
      note_disagreement(squares.value(), count);
      return {};
    }
    if (squares.status().code() != MV_ENOMEM) return squares.status();
  }
  Staging staging;
  const auto here = staging.stage(static_cast<const std::byte*>(data), tensor::dtype_bytes(dtype) * count, Staging::Use::kBoth, find_device_);
  if (!here.ok()) return here.status();
  const auto squares = average_part(number.value(), here.value(), count, dtype);
  if (!squares.ok()) return squares.status();
  take_part(dtype);
  note_disagreement(squares.value(), count);
  return staging.finish();
}

/// Copies what was fetched to the device, and averages there.
base::Result<double> GossipNode::average_there(tensor::Device& device, size_t number, void* data, uint64_t count, mv_dtype dtype) {
  if (is_slow(dtype))
    return outer_->step(next_array_, device, data, {own_part(number), own_part(number + 1)}, {peer_part(number), peer_part(number + 1)});
  const size_t bytes = tensor::dtype_bytes(dtype) * count;
  const auto peer = device.allocate(bytes, tensor::Allocator::Content::kAnything);
  if (!peer.ok()) return peer.status();
  const auto base = approaches() ? device.allocate(bytes, tensor::Allocator::Content::kAnything) : peer;
  if (!base.ok()) return base.status();
  if (auto status = device.from_host(peer.value()->data(), peer_part(number), bytes); !status.ok()) return status;
  if (!approaches()) return device.mix(dtype, data, peer.value()->data(), nullptr, count, factor_);
  if (auto status = device.from_host(base.value()->data(), own_part(number), bytes); !status.ok()) return status;
  return device.mix(dtype, data, peer.value()->data(), base.value()->data(), count, factor_);
}

/// Adds up the squared differences. With the last array the disagreement is known.
void GossipNode::note_disagreement(double squares, uint64_t count) {
  squares_ += squares;
  compared_ += count;
  if (alone_ || next_part_ != caught_parts_.size()) return;
  const double disagreement = compared_ > 0 ? std::sqrt(squares_ / static_cast<double>(compared_)) : 0;
  loop_.post([this, peer = caught_from_, disagreement] { engine_->note_disagreement(peer, disagreement); });
  const Lock figures(figures_);
  told_.disagreement = disagreement;
}

base::Status GossipNode::read(void* data, uint64_t count, mv_dtype dtype) {
  const Lock lock(model_);
  if (outer_) return base::Status(MV_ESTATE, "with `interpolation: noloco` the fetched slow models can only be stepped, not read");
  const auto number = next_part(count, dtype);
  if (!number.ok()) return number.status();
  const auto values = engine_->receive_buffer().part(number.value());
  Staging staging;
  const auto here = staging.stage(static_cast<const std::byte*>(data), values.size(), Staging::Use::kWritten, find_device_);
  if (!here.ok()) return here.status();
  take_part(dtype);
  std::ranges::copy(values, here.value());
  return staging.finish();
}

// ------------------------------------------------------------ peers

base::Status GossipNode::add_peer(const gossip::Node& node) {
  return on_loop([&] { return engine_->add_peer(node); });
}

base::Status GossipNode::remove_peer(const std::string& name) {
  return on_loop([&] { return engine_->remove_peer(name); });
}

/// The peer's memory if it is mapped, otherwise null; then requests the mapping if it is possible.
std::shared_ptr<gossip::SnapshotReader> GossipNode::mapped(base::Peer peer) {
  transport::ShmTransport* const transport = router_->shm();
  if (transport == nullptr || !transport->reaches(peer)) return nullptr;
  Mapping& mapping = mappings_[peer];
  if (mapping.reader != nullptr && !mapping.reader->retired()) return mapping.reader;
  mapping.reader.reset();
  if (std::exchange(mapping.asked, true)) return nullptr;
  transport->ask(peer, kSnapshots, [this, peer](std::shared_ptr<base::SharedMemory> memory) {
    const auto found = mappings_.find(peer);
    if (found == mappings_.end()) return;
    found->second.asked = false;
    if (memory == nullptr) return;
    auto reader = gossip::SnapshotReader::open(std::move(memory));
    if (!reader.ok()) return base::log_debug("{}", reader.status().text());
    found->second.reader = std::move(reader).value();
  });
  return nullptr;
}

std::string GossipNode::transport_to(base::Peer peer) const {
  const auto path = peer != base::kNobody ? router_->path_to(peer) : std::nullopt;
  if (!path) return "";
  if (path->by == base::TransportKind::kShm) return "shared memory";
  return path->cipher.empty() ? "tcp" : "tcp, " + path->cipher;
}

gossip::GossipState GossipNode::state_now() {
  gossip::GossipState state;
  {
    const Lock lock(figures_);
    state = told_;
  }
  state.served_versions = engine_->serving().served_versions();
  state.served_bytes = engine_->serving().served_bytes();
  state.fetched_bytes = engine_->fetched_bytes();
  if (config_.exchange == gossip::Exchange::kSymmetric) state.exchanges = engine_->exchanges();
  for (const auto& [name, peer] : engine_->peers().all())
    state.peers.push_back({name, peer.node.address(), transport_to(peer.life), peer.score.at(engine_->now()), peer.fetched, peer.failed,
                              peer.clock, peer.loss, peer.disagreement, engine_->is_waiting(peer), peer.problem});
  return state;
}

base::Result<gossip::GossipState> GossipNode::state() {
  gossip::GossipState found;
  const auto status = on_loop([&] {
    found = state_now();
    return base::Status();
  });
  if (!status.ok()) return status;
  return found;
}

base::Result<std::string> GossipNode::state_text(bool json) {
  const auto found = state();
  if (!found.ok()) return found.status();
  return json ? json_of(found.value()) : text_of(found.value());
}

base::Result<std::string> GossipNode::metrics() {
  std::string text;
  const auto status = on_loop([&] {
    text = metrics_of(state_now());
    return base::Status();
  });
  if (!status.ok()) return status;
  return text;
}

}  // namespace mv::api
