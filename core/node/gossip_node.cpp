#include "node/gossip_node.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/log.hpp"
#include "math/average.hpp"
#include "node/random.hpp"

namespace mv::node {

namespace {
/// The number by which peers ask for the memory of the snapshots.
constexpr uint64_t kSnapshots = 0;
/// Dice for "whether" and dice for "whom" are not the same ones.
constexpr uint64_t kWhether = 0x77686574'68657221;

base::Status is_closed() { return base::Status(MV_ESTATE, "this node has been closed"); }
}  // namespace

base::Result<std::unique_ptr<GossipNode>> GossipNode::open(gossip::Config config, const std::string& name) {
  const gossip::Node* const found = config.find(name);
  if (found == nullptr) {
    std::string names;
    for (const gossip::Node& node : config.nodes) names += (names.empty() ? "" : ", ") + node.name;
    return base::error(MV_ENOTFOUND, "no node is called \"{}\"; there are {}", name, names.empty() ? "none" : names);
  }
  const gossip::Node self = *found;
  std::unique_ptr<GossipNode> node(new GossipNode(std::move(config)));
  if (auto status = node->set_up(self); !status.ok()) return status;
  return node;
}

base::Status GossipNode::set_up(gossip::Node self) {
  const base::Peer life = random_peer();
  Settings settings;  // no cluster's: only what the roads want to know
  settings.nodes = 0;
  settings.secret = config_.secret;
  auto router = Router::make(loop_, settings, life, trace_, Router::Fencing::kClosed);
  if (!router.ok()) return router.status();
  router_ = std::move(router).value();
  auto address = router_->listen(self.address());
  if (!address.ok()) return address.status();
  if (self.port == 0) {  // the one that it got
    const std::string& text = address.value();
    self.port = static_cast<uint32_t>(std::stoul(text.substr(text.rfind(':') + 1)));
  }
  self_ = self;
  router_->introduce_as(self_.address());

  const uint64_t seed = config_.seed.value_or(life);
  dice_ = gossip::Dice(seed ^ kWhether, self_.name);
  gossip::Gossip::Hooks hooks;
  hooks.on_done = [this] { done_ = true; };
  hooks.mapped = [this](base::Peer peer) { return mapped(peer); };
  hooks.on_more = [this] { loop_.post([this] { engine_->go_on(); }); };
  engine_ = std::make_unique<gossip::Gossip>(loop_, *router_, config_, self_, seed, publisher_, std::move(hooks));
  for (const gossip::Node& node : config_.nodes)
    if (node.name != self_.name)
      if (auto status = engine_->add_peer(node); !status.ok()) return status;

  loop_.add_flusher(*this);
  router_->attach(*engine_);
  if (router_->shm() != nullptr) {
    router_->shm()->serve([this](uint64_t number) { return number == kSnapshots ? publisher_.memory() : nullptr; });
    router_->set_on_shm_lost([this](base::Peer peer) { mappings_.erase(peer); });
  }
  told_.name = self_.name;
  told_.address = self_.address();
  if (auto status = loop_.start(); !status.ok()) return status;
  loop_runs_ = true;
  return {};
}

void GossipNode::close() {
  const Lock lock(closing_);
  if (closed_.exchange(true)) return;
  if (loop_runs_) {
    std::atomic<bool> stopped{false};
    loop_.post([&] { router_->stop([&] { stopped = true; }); });
    while (loop_.drive_until([&] { return stopped.load(); }, base::kNever) == io::Driven::kInterrupted) {
    }
  }
  loop_.stop();
}

GossipNode::~GossipNode() {
  close();
  loop_.remove_flusher(*this);
  router_.reset();  // before what it reports to
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

/// Runs `work` there and waits for it, whatever signals come: it takes no time.
base::Status GossipNode::on_loop(const std::function<base::Status()>& work) {
  const Lock lock(closing_);
  if (closed_) return is_closed();
  base::Status status;
  std::atomic<bool> ran{false};
  loop_.post([&] {
    status = work();
    ran = true;
  });
  while (loop_.drive_until([&] { return ran.load(); }, base::kNever) == io::Driven::kInterrupted) {
  }
  return status;
}

// ------------------------------------------------------------ the model

base::Status GossipNode::add(const void* data, uint64_t count, mv_dtype dtype) {
  const Lock lock(model_);
  if (auto status = publisher_.add(data, count, dtype); !status.ok()) {
    publisher_.drop();
    adding_.clear();
    return status;
  }
  adding_.push_back({count, dtype});
  return {};
}

base::Status GossipNode::publish(double loss) {
  const Lock lock(model_);
  if (closed_) return is_closed();
  if (!std::isfinite(loss)) return base::error(MV_ENONFINITE, "the loss is {}, not a finite number", loss);
  if (adding_.empty()) return base::Status(MV_ESTATE, "nothing was added since the last snapshot");
  if (auto status = publisher_.publish(clock_ + 1, loss); !status.ok()) return status;
  clock_ += 1;
  loss_ = loss;
  ++updates_;
  published_ = std::exchange(adding_, {});
  const Lock figures(figures_);
  told_.clock = clock_;
  told_.loss = loss_;
  told_.updates = updates_;
  return {};
}

base::Result<bool> GossipNode::fetch_start() {
  const Lock lock(model_);
  if (closed_) return is_closed();
  if (updates_ == 0) return base::Status(MV_ESTATE, "publish first: a peer's arrays are compared with this node's");
  if (started_) return base::Status(MV_ESTATE, "a fetch is under way: wait for it first");
  caught_ = false;
  if (!dice_.chance(config_.fetch_probability)) return false;
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
  const io::Driven driven = closed_ ? io::Driven::kStopped : loop_.drive_until([this] { return done_.load(); }, base::kNever);
  if (driven == io::Driven::kInterrupted) return base::Status(MV_EINTR, "a signal came; the fetch goes on: wait again");
  if (driven != io::Driven::kDone) return is_closed();
  started_ = false;
  loss_ = loss;

  fetched.peer = engine_->caught().peer;
  fetched.why = engine_->caught().why;
  if (!fetched.peer.empty()) {
    const gossip::Description& description = engine_->intake().description();
    const auto weight = gossip::factor(config_.interpolation, {clock_, loss}, {description.clock, description.loss});
    if (!weight.ok()) return weight.status();
    fetched.clock = description.clock;
    fetched.loss = description.loss;
    fetched.factor = factor_ = weight.value();
    fetched.parts = description.parts;
    clock_ = gossip::mixed_clock(factor_, clock_, description.clock);
    caught_ = true;
    next_part_ = 0;
  }
  const Lock figures(figures_);
  told_.clock = clock_;
  told_.loss = loss;
  told_.averaged += caught_ ? 1 : 0;
  told_.factor = caught_ ? factor_ : told_.factor;
  told_.last = caught_ ? fetched.peer : fetched.why;
  return fetched;
}

/// The bytes of the next array of what was fetched, which is to have this size and type.
base::Result<std::span<const std::byte>> GossipNode::next_part(uint64_t count, mv_dtype dtype) {
  if (!caught_) return base::Status(MV_ESTATE, "nothing was fetched");
  const auto& parts = engine_->intake().description().parts;
  if (next_part_ == parts.size()) return base::error(MV_ESTATE, "all {} arrays that were fetched have been taken", parts.size());
  const gossip::Part& part = parts[next_part_];
  if (part != gossip::Part{count, dtype})
    return base::error(MV_ESHAPE, "{} was fetched as array {}, {} is given", gossip::describe_parts({&part, 1}), next_part_,
                       gossip::describe_parts(std::array{gossip::Part{count, dtype}}));
  return engine_->intake().part(next_part_++);
}

base::Status GossipNode::average(void* data, uint64_t count, mv_dtype dtype) {
  const Lock lock(model_);
  if (dtype == MV_RAW) return base::Status(MV_EDTYPE, "plain bytes have no mean: read them instead");
  const auto part = next_part(count, dtype);
  if (!part.ok()) return part.status();
  if (factor_ > 0) math::average_bytes(dtype, static_cast<std::byte*>(data), part.value().data(), count, factor_);
  return {};
}

base::Status GossipNode::read(void* data, uint64_t count, mv_dtype dtype) {
  const Lock lock(model_);
  const auto part = next_part(count, dtype);
  if (!part.ok()) return part.status();
  std::ranges::copy(part.value(), static_cast<std::byte*>(data));
  return {};
}

// ------------------------------------------------------------ peers

base::Status GossipNode::add_peer(const gossip::Node& node) {
  return on_loop([&] { return engine_->add_peer(node); });
}

base::Status GossipNode::remove_peer(const std::string& name) {
  return on_loop([&] { return engine_->remove_peer(name); });
}

/// The peer's memory, if it is mapped; asks for it where it could be.
std::shared_ptr<gossip::SnapshotReader> GossipNode::mapped(base::Peer peer) {
  io::ShmRoad* const road = router_->shm();
  if (road == nullptr || !road->reaches(peer)) return nullptr;
  Mapping& mapping = mappings_[peer];
  if (mapping.reader != nullptr && !mapping.reader->retired()) return mapping.reader;
  mapping.reader.reset();
  if (std::exchange(mapping.asked, true)) return nullptr;
  road->ask(peer, kSnapshots, [this, peer](std::shared_ptr<base::SharedMemory> memory) {
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

std::string GossipNode::road_to(base::Peer peer) const {
  const auto reach = peer != base::kNobody ? router_->reach(peer) : std::nullopt;
  if (!reach) return "";
  return reach->by == base::RoadKind::kShm ? "shared memory" : "tcp";
}

gossip::Standing GossipNode::standing() {
  gossip::Standing standing;
  {
    const Lock lock(figures_);
    standing = told_;
  }
  standing.served_bytes = engine_->served_bytes();
  for (const auto& [name, peer] : engine_->peers().all())
    standing.peers.push_back({name, peer.node.address(), road_to(peer.life), peer.score.at(engine_->now()), peer.fetched, peer.failed,
                              peer.clock, peer.loss, peer.problem});
  return standing;
}

base::Result<std::string> GossipNode::state(bool json) {
  std::string text;
  const auto status = on_loop([&] {
    text = json ? standing_json(standing()) : standing_text(standing());
    return base::Status();
  });
  if (!status.ok()) return status;
  return text;
}

}  // namespace mv::node
