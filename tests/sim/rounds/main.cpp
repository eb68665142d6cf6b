// sim_rounds: workers add to a merging table and get it back while members are cut off, leave the rounds or are killed. Whatever comes is
// what some number of whole rounds leaves, each merged once, from all who took part: no fewer than the reader's own adds, and never
// fewer than it has seen before.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "codec/values.hpp"
#include "engine/member.hpp"
#include "engine/ps/plan.hpp"
#include "network.hpp"
#include "rounds/model.hpp"
#include "seeds.hpp"

namespace {

using namespace mv;
using namespace mv::sim;
using namespace std::chrono_literals;

constexpr size_t kInFlight = 6;
constexpr Nanos kEnd = 600s;

class Rounds {
 public:
  Rounds(uint64_t seed, bool verbose)
      : random_(Random::mix(seed)), nodes_(static_cast<size_t>(random_.between(2, 6))), network_(timeline_, random_.fork(), weather()) {
    network_.verbose = verbose;
    for (size_t i = 0; i < nodes_.size(); ++i) nodes_[i].role = static_cast<int>(random_.between(1, 3));
    while (count(MV_ROLE_SERVER) == 0 || count(MV_ROLE_WORKER) < 2) nodes_[random_.below(nodes_.size())].role = MV_ROLE_ALL;
    model_ = std::make_unique<RoundModel>(choose_spec(), seed, count(MV_ROLE_SERVER));
    const uint64_t length = random_.below(15) + 1;
    for (Node& node : nodes_) node.length = random_.chance(0.2) ? random_.below(length) : length;
    if (random_.chance(0.3)) choose_victim();
  }

  /// What went wrong; "" if nothing did.
  std::string run() {
    for (size_t i = 0; i < nodes_.size(); ++i) start(i);
    while (timeline_.violation().empty() && timeline_.step(kEnd)) {
    }
    for (const Node& node : nodes_)
      if (timeline_.violation().empty() && node.member != nullptr)
        timeline_.violated(fmt::format("{} has not ended: {} of {} adds, {} calls under way", name(node), node.begun, node.length, node.open));
    return timeline_.violation();
  }

  std::string describe() const {
    std::string text = fmt::format(": {} nodes, {} servers, {}", nodes_.size(), count(MV_ROLE_SERVER), model_->spec().describe());
    return text + (victim_ < nodes_.size() ? fmt::format(", node {} is killed", victim_) : "");
  }

 private:
  struct Node {
    int role = MV_ROLE_ALL;
    cluster::Self self;
    std::unique_ptr<SimLink> link;
    std::unique_ptr<engine::Member> member;
    bool flush_asked = false, killed = false, serves_on = false, ended = false, left = false;
    Nanos armed = base::kNever;
    // a worker's
    size_t worker = SIZE_MAX;
    uint64_t length = 0;          ///< adds that it makes
    uint64_t begun = 0, known = 0;  ///< adds; acknowledged ones
    size_t open = 0;              ///< calls under way
    size_t gets = 0;
    ps::TableViewRef table;
    std::vector<uint64_t> seen;   ///< by server: so many rounds at least
  };

  /// A call of a worker's.
  struct Call final : ps::Completion {
    Call(Rounds& rounds, Node& node) : rounds(rounds), node(node), own(node.begun), seen(node.seen) {}
    void complete(const base::Status& status) override { rounds.completed(*this, status); }
    Rounds& rounds;
    Node& node;
    const uint64_t own;               ///< own adds that came before
    const std::vector<uint64_t> seen; ///< by earlier gets that were over
    std::vector<double> values;       ///< of a get
    std::vector<double> added;
    bool is_get = false;
  };

  size_t count(int role) const {
    return static_cast<size_t>(std::ranges::count_if(nodes_, [&](const Node& node) { return (node.role & role) != 0; }));
  }
  std::string name(const Node& node) const { return fmt::format("node {}", &node - nodes_.data()); }

  Weather weather() {
    Weather weather;
    weather.latency = Nanos(random_.between(20'000, 500'000));
    weather.jitter = Nanos(random_.between(0, 3'000'000));
    weather.lossy = random_.chance(0.4);
    if (weather.lossy) weather.drop = 0.01 * static_cast<double>(random_.between(0, 15));
    if (weather.lossy) weather.duplicate = 0.01 * static_cast<double>(random_.between(0, 15));
    lossy_ = weather.lossy;
    return weather;
  }

  table::Spec choose_spec() {
    static constexpr const char* kUpdaters[] = {"add", "replace", "mx.sgd learning_rate=1 momentum=0.5"};
    table::Spec spec;
    spec.name = "t";
    spec.dtype = MV_F64;
    spec.flags = MV_MERGE;
    spec.kind = random_.chance(0.3) ? MV_SPARSE : MV_MATRIX;
    if (random_.chance(0.3)) spec.flags |= table::kSliced;
    spec.rows = 1 + random_.below(12);
    spec.cols = 1 + random_.below(3);
    spec.updater = table::parse_updater(kUpdaters[spec.is_keyed() ? 2 * random_.below(2) : random_.below(3)]).value();
    if (!spec.is_keyed() && random_.chance(0.4)) spec.home = static_cast<uint32_t>(1 + random_.below(100));
    return spec;
  }

  void choose_victim() {
    for (size_t i = 1; i < nodes_.size() && count(MV_ROLE_WORKER) > 2; ++i)
      if (nodes_[i].role == MV_ROLE_WORKER) victim_ = i;
  }

  // ---- a node's life

  void start(size_t i) {
    Node& node = nodes_[i];
    node.self.peer = random_.next() | 1;
    node.self.rank = static_cast<int64_t>(i);
    node.self.nodes = static_cast<uint32_t>(nodes_.size());
    node.self.role = static_cast<decltype(node.self.role)>(node.role);
    node.self.is_master = i == 0;
    node.self.master = "sim:0";
    node.self.address = fmt::format("sim:{}", i);
    node.self.host = "sim";
    node.self.pid = static_cast<uint32_t>(1000 + i);
    node.link = std::make_unique<SimLink>(network_, node.self.peer);
    rpc::ClientOptions options;
    if (lossy_) options.probe_after = 100ms;
    engine::Member::Events events{[this, &node](const cluster::View& view) { on_ready(node, view); },
                                  [this, &node](const base::Status& why) { timeline_.violated(name(node) + ": " + why.text()); },
                                  [this, &node] { touch(node); }};
    node.member = std::make_unique<engine::Member>(timeline_, *node.link, node.self, options, std::move(events));
    network_.add(node.self.peer, name(node), node.self.address, *node.member, [this, &node] { touch(node); });
    node.member->start();
    touch(node);
  }

  void on_ready(Node& node, const cluster::View& view) {
    ++ready_;
    strike();
    node.seen.resize(count(MV_ROLE_SERVER));
    if ((node.role & MV_ROLE_WORKER) == 0) {
      node.serves_on = true;
      return touch(node);
    }
    node.worker = static_cast<size_t>(view.worker_id(node.self.peer));
    later(node, 0s, [this, &node] {
      node.member->tables().create(model_->spec(), nullptr, base::kNever, [this, &node](const base::Result<ps::TableViewRef>& table) {
        if (!table.ok()) return timeline_.violated(name(node) + ": " + table.status().text());
        node.table = table.value();
        ++creators_;
        strike();
        go(node);
      });
      touch(node);
    });
  }

  /// Once all are there and have the table.
  void strike() {
    if (ready_ < nodes_.size() || creators_ < count(MV_ROLE_WORKER)) return;
    if (victim_ < nodes_.size())
      timeline_.after(Nanos(random_.between(0, 200'000'000)), [this] {
        Node& node = nodes_[victim_];
        if (node.ended) return;
        network_.remove(node.self.peer, false, random_.chance(0.8));
        node.killed = true;
        node.member.reset();
      });
    for (size_t i = random_.below(4); i > 0; --i)
      timeline_.after(Nanos(random_.between(0, 300'000'000)), [this] {
        const Node &a = nodes_[random_.below(nodes_.size())], &b = nodes_[random_.below(nodes_.size())];
        const Nanos span(random_.between(1'000'000, 800'000'000));
        if (&a != &b && a.member != nullptr && b.member != nullptr) network_.part(a.self.peer, b.self.peer, span, random_.chance(0.7));
        if (&a == &b && a.member != nullptr) network_.pause(a.self.peer, span);
      });
  }

  void touch(Node& node) {
    if (node.member == nullptr || std::exchange(node.flush_asked, true)) return;
    later(node, 10us, [this, &node] {
      node.flush_asked = false;
      node.member->flush();
      arm(node);
      if (node.serves_on && node.member->cluster().all_workers_gone()) end(node);
    });
  }

  void arm(Node& node) {
    const Nanos next = node.member->next_deadline();
    if (next == node.armed) return;
    node.armed = next;
    if (next == base::kNever) return;
    later(node, next - timeline_.now(), [this, &node, next] {
      if (node.armed != next) return;
      node.armed = base::kNever;
      node.member->tick();
      touch(node);
    });
  }

  void later(Node& node, Nanos span, std::function<void()> work) {
    timeline_.after(span, [this, &node, work = std::move(work)]() mutable {
      if (node.member == nullptr) return;
      network_.when_running(node.self.peer, [&node, work = std::move(work)] {
        if (node.member != nullptr) work();
      });
    });
  }

  void end(Node& node) {
    if (std::exchange(node.ended, true)) return;
    later(node, 1ms, [this, &node] {
      check_part(node);
      network_.remove(node.self.peer, true, true);
      node.member.reset();
    });
  }

  // ---- what a worker does

  void go(Node& node) {
    later(node, Nanos(random_.between(1'000, 20'000'000)), [this, &node] { step(node); });
  }

  void step(Node& node) {
    if (ready_ < nodes_.size()) return go(node);  // who leaves earlier breaks the cluster up
    if (node.begun < node.length && node.open < kInFlight && random_.chance(0.6)) {
      add(node);
    } else if (node.open < kInFlight && node.gets < 2 * node.length + 2) {
      get(node);
    }
    if (node.begun < node.length || node.gets < node.length || node.open > 0) return go(node);
    if (!node.left && random_.chance(0.5)) {  // the rounds, not the cluster: it looks on for a while
      node.left = true;
      node.gets = 0;
      node.member->tables().clock(node.table, UINT64_MAX);
      touch(node);
      return go(node);
    }
    node.left = true;
    node.member->leave([this, &node](const base::Status& status) {
      if (!status.ok() && victim_ >= nodes_.size()) timeline_.violated(name(node) + " left: " + status.text());
      if ((node.role & MV_ROLE_SERVER) == 0 && !node.self.is_master) return end(node);
      node.serves_on = true;
      touch(node);
    });
    touch(node);
  }

  void begin(const std::shared_ptr<Call>& call, ps::Request request) {
    request.table = call->node.table;
    request.completion = call;
    ++call->node.open;
    call->node.member->tables().begin(std::move(request));
    touch(call->node);
  }

  void add(Node& node) {
    const auto call = std::make_shared<Call>(*this, node);
    RoundPart part = model_->part(node.worker, node.begun++);
    call->added = std::move(part.values);
    ps::Request request;
    request.kind = ps::OpKind::kChange;
    request.all = part.all;
    request.rows = std::move(part.rows);
    request.source = base::Payload::copy(std::as_bytes(std::span(call->added)));
    request.priority = static_cast<int64_t>(random_.below(3));
    if (request.all && random_.chance(0.4)) encode(call->added, request);
    node.table->open_changes.fetch_add(1);
    begin(call, std::move(request));
  }

  /// By a codec that loses nothing of whole numbers.
  static const codec::CodecRef& whole_codec() {
    static const codec::CodecRef codec = codec::make(codec::parse("topk ratio=1").value());
    return codec;
  }
  void encode(std::span<const double> values, ps::Request& request) const {
    auto pieces = ps::plan_all(model_->spec(), count(MV_ROLE_SERVER));
    std::vector<std::byte> encoded(ps::place_encoded(pieces, *whole_codec()));
    for (const ps::Piece& piece : pieces) {
      std::vector<double> nothing(piece.count);
      codec::encode_values(*whole_codec(), MV_F64, std::as_bytes(values.subspan(piece.offset)).data(), std::as_writable_bytes(std::span(nothing)).data(),
                           piece.count, encoded.data() + piece.encoded_at);
    }
    request.codec = whole_codec();
    request.source = base::Payload::copy(encoded);
  }

  void get(Node& node) {
    const auto call = std::make_shared<Call>(*this, node);
    ++node.gets;
    call->is_get = true;
    call->values.resize(model_->spec().elements());
    ps::Request request;
    for (int64_t row = 0; row < static_cast<int64_t>(model_->spec().rows); ++row) request.rows.push_back(row);
    request.all = !model_->spec().is_keyed() && random_.chance(0.5);
    if (request.all) request.rows.clear();
    request.priority = static_cast<int64_t>(random_.below(3));
    const bool whole = model_->spec().updater.name == "add" || model_->spec().updater.name == "replace";
    if (request.all && whole && random_.chance(0.4)) request.codec = whole_codec();
    request.destination = std::as_writable_bytes(std::span(call->values));
    begin(call, std::move(request));
  }

  void completed(Call& call, const base::Status& status) {
    Node& node = call.node;
    --node.open;
    if (!status.ok()) {
      if (status.code() != MV_EPEERLOST || victim_ >= nodes_.size() || !nodes_[victim_].killed || !call.is_get)
        timeline_.violated(fmt::format("{}: a call ended with {}", name(node), status.text()));
      return;
    }
    if (!call.is_get) {
      ++node.known;
      return;
    }
    const uint64_t cols = model_->spec().cols;
    for (size_t server = 0; server < node.seen.size(); ++server) {
      std::vector<double> values;
      for (const int64_t row : model_->rows_of(server))
        for (uint64_t col = 0; col < cols; ++col) values.push_back(call.values[static_cast<uint64_t>(row) * cols + col]);
      check(name(node) + "'s get", server, values, std::max(call.own, call.seen[server]), false, &node.seen[server]);
    }
  }

  // ---- what comes of it

  /// `whole`: all rounds that there are, and no fewer.
  void check(const std::string& who, size_t server, std::span<const double> values, uint64_t least, bool whole, uint64_t* seen) {
    if (values.empty()) return;
    std::vector<uint64_t> parts(count(MV_ROLE_WORKER));
    uint64_t most = 0, all = UINT64_MAX;  // nobody who takes part is left out
    for (const Node& node : nodes_) {
      if (node.worker == SIZE_MAX) continue;
      parts[node.worker] = node.begun;
      most = std::max(most, node.begun);
      if (!node.left && !node.killed) all = std::min(all, node.begun);
    }
    most = std::min(most, all);
    const bool killed = victim_ < nodes_.size() && nodes_[victim_].killed;
    const size_t victim = killed ? nodes_[victim_].worker : 0;
    const uint64_t fewest = killed ? nodes_[victim_].known : parts[victim], begun = parts[victim];
    for (uint64_t known = fewest; known <= begun; ++known) {  // of a killed one's adds some may never have left it
      parts[victim] = known;
      const uint64_t last = whole ? *std::ranges::max_element(parts) : most;
      const uint64_t found = model_->rounds_in(server, values, parts, whole ? last : least, last);
      if (found == UINT64_MAX) continue;
      if (seen != nullptr && !killed) *seen = std::max(*seen, found);
      return;
    }
    timeline_.violated(fmt::format("{}: server {} shows {} ..., which is not what {} .. {} rounds leave", who, server, values.front(), least, most));
  }

  void check_part(const Node& node) {
    if ((node.role & MV_ROLE_SERVER) == 0) return;
    const auto server = static_cast<size_t>(node.member->cluster().view().server_id(node.self.peer));
    const auto shard = node.member->shards().shard(0);
    if (shard == nullptr) return timeline_.violated(name(node) + " has no table");
    std::vector<int64_t> rows = model_->rows_of(server);
    std::vector<double> values(rows.size() * model_->spec().cols);
    const int64_t first = table::first_row(model_->spec(), count(MV_ROLE_SERVER), server);
    for (int64_t& row : rows) row -= first;
    shard->read_rows(table::kNoWorker, rows, reinterpret_cast<std::byte*>(values.data()));
    check(name(node) + " at the end", server, values, 0, true, nullptr);
  }

  Timeline timeline_;
  Random random_;
  std::vector<Node> nodes_;
  bool lossy_ = false;
  Network network_;
  std::unique_ptr<RoundModel> model_;
  size_t victim_ = SIZE_MAX;
  size_t ready_ = 0, creators_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  return mv::sim::run_seeds(argc, argv, "Rounds of a merging table on virtual time and a network that misbehaves by seeded dice.",
                            [](uint64_t seed, bool verbose) { return Rounds(seed, verbose).run(); },
                            [](uint64_t seed) { return Rounds(seed, false).describe(); });
}
