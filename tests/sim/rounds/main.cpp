// sim_rounds: workers add to a merging table and read it while members are cut off, leave the rounds or are killed. Every value read is the
// result of some number of whole rounds, each merged once from all workers that took part. That number includes the reader's own adds, and
// never decreases. Meanwhile workers set the current updater again, and send commands; at the end one reads the updater's states and writes
// them back. Another worker may replace a killed one and take part from then on. In some seeds the table is a small key of a store and has
// siblings: the same values are added to all of them, in one message where possible, and one message gets all of them. With --replicas 1, a
// server is killed in place of a worker: no call may fail, and at the end the copies of the parts are as complete as the parts.

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "codec/values.hpp"
#include "engine/member.hpp"
#include "engine/table/client/plan.hpp"
#include "host_memory.hpp"
#include "keeper.hpp"
#include "rounds/command_log.hpp"
#include "rounds/model.hpp"
#include "rounds/states_trip.hpp"
#include "seeds.hpp"

namespace {

using namespace mv;
using namespace mv::sim;
using namespace std::chrono_literals;

constexpr size_t kInFlight = 6;
constexpr Nanos kEnd = 600s;

class Rounds {
 public:
  explicit Rounds(const SeedRun& asked) : Rounds(asked.seed, asked.verbose, asked.replicas) {}
  Rounds(uint64_t seed, bool verbose, size_t replicas)
      : random_(Random::mix(seed)),
        replicas_(replicas),
        places_(static_cast<size_t>(random_.between(static_cast<int64_t>(replicas) + 2, 6))),
        nodes_(places_),
        conditions_(draw_conditions(random_)),
        network_(timeline_, random_.fork(), conditions_),
        machine_(timeline_, network_, Random(Random::mix(~seed)), [this](Peer peer) { return member_of(peer); }),
        one_machine_(replicas > 0 && seed % 2 == 0) {
    network_.verbose = verbose;
    for (size_t i = 0; i < nodes_.size(); ++i) nodes_[i].role = static_cast<int>(random_.between(1, 3));
    for (size_t i = 0; i < nodes_.size(); ++i) nodes_[i].number = nodes_[i].place = i;
    if (replicas_ > 0) nodes_.back().role = MV_ROLE_SERVER;  // to be killed
    const size_t least = replicas_ + 1;
    while (count(MV_ROLE_SERVER) < least || count(MV_ROLE_WORKER) < 2) nodes_[random_.below(places_ - (least - 1))].role = MV_ROLE_ALL;
    model_ = std::make_unique<RoundModel>(choose_spec(), seed, count(MV_ROLE_SERVER));
    if (shard::is_small_key(model_->spec())) tables_ = static_cast<size_t>(random_.between(1, 4));
    const uint64_t length = random_.below(model_->spec().elements() > 1000 ? 3 : 15) + 1;
    for (Node& node : nodes_) node.length = random_.chance(0.2) ? random_.below(length) : length;
    if (replicas_ > 0)
      kills_server_ = random_.chance(0.7);
    else if (random_.chance(0.4))
      choose_victim();
  }

  /// Runs one seed; returns what went wrong, or "".
  std::string run() {
    for (Node& node : nodes_) start(node);
    while (timeline_.violation().empty() && timeline_.step(kEnd)) {
    }
    for (const Node& node : nodes_)
      if (timeline_.violation().empty() && node.member != nullptr)
        timeline_.violated(fmt::format("{} has not ended: {} of {} adds, {} open calls", name(node), node.begun, node.length, node.open));
    return timeline_.violation();
  }

  std::string describe() const {
    std::string text = fmt::format("{} nodes, {} servers, {} times {}", nodes_.size(), count(MV_ROLE_SERVER), tables_, model_->spec().describe());
    if (kills_server_) text += fmt::format(", node {}, a server, is killed", places_ - 1);
    return text + (victim_ < nodes_.size() ? fmt::format(", node {} is killed", victim_) : "");
  }

 private:
  struct Node : Kept {
    size_t number = 0, place = 0;  ///< of its life; in the cluster
    std::unique_ptr<SimHostMemory> memory;
    int role = MV_ROLE_ALL;
    bool killed = false, serves_on = false, ended = false, left = false;
    // a worker's
    size_t worker = SIZE_MAX;
    uint64_t length = 0;          ///< the number of its adds
    uint64_t first = 0;           ///< the round of the first one
    uint64_t begun = 0;           ///< the number of begun adds
    std::vector<uint64_t> known;  ///< by table: its acknowledged adds
    size_t open = 0;              ///< open calls
    size_t gets = 0;
    uint64_t commands = 0;        ///< the number that it has sent
    uint64_t executed = 0;        ///< those of them that it knows to be executed
    bool gone = false;            ///< all nodes know that it has finished
    bool tripped = false;         ///< it has read the states and written them back
    CommandLog log;               ///< a server's
    std::vector<table::TableViewRef> tables;
    std::vector<std::vector<uint64_t>> seen;  ///< by table and server: the least number of rounds
  };

  /// A worker's call.
  struct Call final : base::Operation {
    Call(Rounds& rounds, Node& node, size_t first) : rounds(rounds), node(node), own(node.first + node.begun), seen(node.seen), first(first) {}
    void ended(const base::Status& status) override { rounds.completed(*this, status); }
    Rounds& rounds;
    Node& node;
    const uint64_t own;               ///< rounds of own adds that came before
    const std::vector<std::vector<uint64_t>> seen; ///< by earlier gets that had completed
    const size_t first;                      ///< its table
    std::vector<std::vector<double>> values; ///< of a get, for this table and those after it
    std::vector<double> added;
    bool is_get = false;
  };

  /// A command, or an update of the updater to its current parameters.
  struct Order final : base::Operation {
    Order(Rounds& rounds, Node& node, mv_status expected) : rounds(rounds), node(node), expected(expected) {}
    void ended(const base::Status& status) override {
      --node.open;
      if (status.code() != expected)
        rounds.timeline_.violated(fmt::format("{}: a command or update ended with {}: {}", rounds.name(node),
                                              static_cast<int>(status.code()), status.text()));
      ++node.executed;
    }
    Rounds& rounds;
    Node& node;
    const mv_status expected;
  };

  engine::Member* member_of(Peer peer) const {
    const auto node = std::ranges::find_if(nodes_, [&](const Node& one) { return one.self.peer == peer; });
    return node != nodes_.end() ? node->member.get() : nullptr;
  }
  size_t count(int role) const {
    return static_cast<size_t>(std::count_if(nodes_.begin(), nodes_.begin() + static_cast<ptrdiff_t>(places_),
                                             [&](const Node& node) { return (node.role & role) != 0; }));
  }
  static std::string name(const Node& node) { return fmt::format("node {}{}", node.place, node.number != node.place ? " (again)" : ""); }

  shard::Spec choose_spec() {
    static constexpr const char* kUpdaters[] = {"add", "replace", "mx.sgd learning_rate=1 momentum=0.5"};
    shard::Spec spec;
    spec.name = "t";
    spec.dtype = MV_F64;
    spec.flags = MV_MERGE;
    spec.kind = random_.chance(0.3) ? MV_SPARSE : MV_MATRIX;
    if (random_.chance(0.3)) spec.flags |= shard::kSliced;
    spec.rows = 1 + random_.below(12);
    spec.cols = 1 + random_.below(3);
    spec.updater = shard::parse_updater(kUpdaters[spec.is_keyed() ? 2 * random_.below(2) : random_.below(3)]).value();
    if (!spec.is_keyed() && random_.chance(0.4)) spec.home = static_cast<uint32_t>(1 + random_.below(100));
    if (spec.home != 0 && random_.chance(0.6)) {
      spec.flags |= shard::kStoreKey;
      spec.name = "kv-0/t";
    }
    if (!spec.is_keyed() && random_.chance(0.05)) {  // several stripes of some rows each, or less than one
      spec.flags |= shard::kSliced;
      spec.rows = 2 + random_.below(3);
      spec.cols = random_.chance(0.5) ? 5000 + random_.below(3000) : 17000 + random_.below(3000);
    }
    return spec;
  }

  void choose_victim() {
    for (size_t i = 1; i < nodes_.size() && count(MV_ROLE_WORKER) > 2; ++i)
      if (nodes_[i].role == MV_ROLE_WORKER) victim_ = i;
  }

  // ---- a node's life cycle

  void start(Node& node) {
    node.self.peer = random_.next() | 1;
    node.self.rank = static_cast<int64_t>(node.place);
    node.self.nodes = static_cast<uint32_t>(places_);
    node.self.role = static_cast<decltype(node.self.role)>(node.role);
    node.self.replicas = static_cast<uint32_t>(replicas_);
    node.self.is_master = node.number == 0;
    node.self.master = "sim:0";
    node.self.address = fmt::format("sim:{}", node.number);
    node.self.host = "sim";
    node.self.pid = static_cast<uint32_t>(1000 + node.number);
    node.looked_after = [this, &node] {
      if (node.serves_on && node.member->cluster().all_workers_gone()) end(node);
    };
    node.link = std::make_unique<SimLink>(network_, node.self.peer);
    rpc::ClientOptions options;
    if (conditions_.lossy) options.probe_after = 100ms;
    engine::Member::Events events{[this, &node](const cluster::View& view) { on_ready(node, view); },
                                  [this, &node](const base::Status& why) { on_failed(node, why); },
                                  [this, &node] { keeper_.touch(node); }};
    node.member = std::make_unique<engine::Member>(timeline_, *node.link, node.self, options, std::move(events));
    if (one_machine_) {
      node.memory = std::make_unique<SimHostMemory>(machine_, node.self.peer);
      node.member->parts().use(*node.memory);
    }
    network_.add(node.self.peer, name(node), node.self.address, *node.member, [this, &node] { keeper_.touch(node); });
    if ((node.role & MV_ROLE_SERVER) != 0)
      node.member->commands().set_controller(table::Commands::Controller::kHere, [this, &node](int64_t more) {
        for (; more > 0; --more) keeper_.later(node, Nanos(random_.between(0, 20'000'000)), [this, &node] { execute(node); });
      });
    node.member->start();
    keeper_.touch(node);
  }

  void execute(Node& node) {
    const std::string wrong = node.log.execute(node.member->commands());
    if (!wrong.empty()) timeline_.violated(name(node) + " " + wrong);
    keeper_.touch(node);
  }

  /// A worker that replaces another one may come too late.
  void on_failed(Node& node, const base::Status& why) {
    if (node.number < places_) return timeline_.violated(name(node) + ": " + why.text());
    end(node);
  }

  void come_back() {
    if (std::ranges::any_of(nodes_, [](const Node& node) { return node.ended; })) return;  // the cluster is ending
    Node& node = nodes_.emplace_back();
    node.number = nodes_.size() - 1;
    node.place = victim_;
    node.role = nodes_[victim_].role;
    node.length = nodes_[victim_].length;
    start(node);
  }

  void on_ready(Node& node, const cluster::View& view) {
    ++ready_;
    inject();
    node.seen.assign(tables_, std::vector<uint64_t>(count(MV_ROLE_SERVER)));
    node.known.resize(tables_);
    if ((node.role & MV_ROLE_WORKER) == 0) {
      node.serves_on = true;
      return keeper_.touch(node);
    }
    node.worker = static_cast<size_t>(view.worker_id(node.self.peer));
    keeper_.later(node, 0s, [this, &node] {
      std::vector<table::NewTable> wanted;
      for (size_t i = 0; i < tables_; ++i) {
        shard::Spec spec = model_->spec();
        if (i > 0) spec.name += std::to_string(i);
        wanted.push_back({std::make_shared<const shard::Spec>(std::move(spec))});
      }
      node.member->tables().catalogue().create(std::move(wanted), base::kNever, [this, &node](const base::Result<std::vector<table::TableViewRef>>& made) {
        if (!made.ok()) return timeline_.violated(name(node) + ": " + made.status().text());
        const auto begin = [this, &node, tables = made.value()] { begin_with(node, tables); };
        const table::TableViewRef& first = made.value().front();
        first->is_newcomer ? node.member->tables().entry().enter(first, wire::Counted::Add, begin) : begin();
      });
      keeper_.touch(node);
    });
  }

  void begin_with(Node& node, const std::vector<table::TableViewRef>& tables) {
    node.tables = tables;
    for (const table::TableViewRef& table : node.tables) node.first = std::max<uint64_t>(node.first, table->clock);
    for (const table::TableViewRef& table : node.tables) start_at_common_round(node, table);
    ++creators_;
    inject();
    go(node);
  }

  /// A worker that replaces a lost one, and begins when the others have left the rounds, may find its predecessor's entry in some of the
  /// tables only: it takes part in all of them from the same round on.
  static void start_at_common_round(Node& node, const table::TableViewRef& table) {
    if (table->clock == node.first) return;
    table->clock = node.first;
    node.member->tables().catalogue().clock(table, node.first);
  }

  /// Once all nodes have joined and opened the tables.
  void inject() {
    if (ready_ < places_ || creators_ < count(MV_ROLE_WORKER) || std::exchange(struck_, true)) return;
    if (victim_ < nodes_.size())
      timeline_.after(Nanos(random_.between(0, 200'000'000)), [this] {
        Node& node = nodes_[victim_];
        if (node.ended) return;
        network_.remove(node.self.peer, false, random_.chance(0.8));
        node.killed = true;
        node.member.reset();
        if (random_.chance(0.7)) timeline_.after(Nanos(random_.between(50'000'000, 2'000'000'000)), [this] { come_back(); });
      });
    if (kills_server_)
      timeline_.after(Nanos(random_.between(0, 200'000'000)), [this] {
        Node& node = nodes_[places_ - 1];
        if (node.ended) return;
        network_.remove(node.self.peer, false, random_.chance(0.8));
        node.killed = node.ended = true;
        node.member.reset();
      });
    keeper_.disturb(nodes_);
  }

  void end(Node& node) {
    if (std::exchange(node.ended, true)) return;
    keeper_.later(node, 1ms, [this, &node] {
      node.member->parts().read_journals();  // copies of other servers' parts may be behind
      check_part(node);
      network_.remove(node.self.peer, true, true);
      node.member.reset();
    });
  }

  // ---- a worker's program

  void go(Node& node) {
    keeper_.later(node, Nanos(random_.between(1'000, 20'000'000)), [this, &node] { step(node); });
  }

  void step(Node& node) {
    if (ready_ < places_) return go(node);  // a worker that leaves earlier would end the cluster
    if (node.begun < node.length && node.open < kInFlight && random_.chance(0.6)) {
      add(node);
    } else if (node.open < kInFlight && node.gets < 2 * node.length + 2) {
      get(node);
    }
    if (!node.left && node.open < kInFlight && random_.chance(0.1)) order(node);
    if (node.begun < node.length || node.gets < node.length || node.open > 0) return go(node);
    if (!node.left && random_.chance(0.5)) {  // leaves the rounds, not the cluster: it keeps reading for a while
      node.left = true;
      node.gets = 0;
      for (const table::TableViewRef& table : node.tables) node.member->tables().catalogue().clock(table, UINT64_MAX);
      keeper_.touch(node);
      return go(node);
    }
    if (takes_states(node)) return trip(node);
    node.left = true;
    node.member->leave([this, &node](const base::Status& status) {
      if (!status.ok() && victim_ >= nodes_.size()) timeline_.violated(name(node) + " left: " + status.text());
      node.gone = true;
      if ((node.role & MV_ROLE_SERVER) == 0 && !node.self.is_master) return end(node);
      node.serves_on = true;
      keeper_.touch(node);
    });
    keeper_.touch(node);
  }

  void order(Node& node) {
    ++node.open;
    if (replicas_ == 0 && random_.chance(0.5)) {  // commands go to processes, which have no back-up
      const int64_t head = CommandLog::head(node.number, node.commands++);
      node.member->tables().inquiries().command(head, CommandLog::body(head), std::make_shared<Order>(*this, node, CommandLog::outcome(head)));
    } else {
      node.member->tables().catalogue().set_updater(node.tables[random_.below(tables_)], model_->spec().updater, SIZE_MAX,
                                        std::make_shared<Order>(*this, node, MV_OK));
    }
    keeper_.touch(node);
  }

  /// Whether all others have finished, and none was killed, so that nothing changes any more.
  bool takes_states(const Node& node) const {
    if (node.tripped || model_->spec().is_keyed() || victim_ < nodes_.size() || kills_server_) return false;
    return std::ranges::all_of(nodes_, [&](const Node& other) { return &other == &node || other.worker == SIZE_MAX || other.gone; });
  }

  void trip(Node& node) {
    node.tripped = true;
    const auto done = [this, &node](const std::string& wrong) {
      if (!wrong.empty()) return timeline_.violated(name(node) + ": " + wrong);
      go(node);
    };
    std::make_shared<StatesTrip>(node.member->tables(), node.tables.back(), [this, &node] { keeper_.touch(node); }, done)->go();
  }

  void begin(const std::shared_ptr<Call>& call, table::Request request) {
    request.table = call->node.tables[call->first];
    request.operation = call;
    ++call->node.open;
    call->node.member->tables().begin(std::move(request));
    keeper_.touch(call->node);
  }

  void add(Node& node) {
    const RoundPart part = model_->part(node.worker, node.first + node.begun++);
    if (is_many() && part.all && random_.chance(0.8)) return add_many(node, part);
    for (size_t table = 0; table < tables_; ++table) add_one(node, table, part);
  }

  void add_one(Node& node, size_t table, const RoundPart& part) {
    const auto call = std::make_shared<Call>(*this, node, table);
    call->added = part.values;
    table::Request request;
    request.kind = table::OpKind::kChange;
    request.all = part.all;
    request.rows = part.rows;
    request.source = base::Payload::copy(std::as_bytes(std::span(call->added)));
    request.priority = static_cast<int64_t>(random_.below(3));
    if (request.all && random_.chance(0.4)) encode(call->added, request);
    node.tables[table]->open_changes.fetch_add(1);
    begin(call, std::move(request));
  }

  bool is_many() const { return shard::is_small_key(model_->spec()); }
  size_t home() const { return static_cast<size_t>(shard::home_of(model_->spec(), count(MV_ROLE_SERVER))); }

  /// In one message, with no completion for the caller.
  void add_many(Node& node, const RoundPart& part) {
    std::vector<double> values;
    for (const table::TableViewRef& table : node.tables) {
      values.insert(values.end(), part.values.begin(), part.values.end());
      table->open_changes.fetch_add(1);
    }
    node.member->tables().add_many({home(), node.tables, base::Payload::copy(std::as_bytes(std::span(values))), 0});
    keeper_.touch(node);
  }

  /// With a codec that is lossless for whole numbers.
  static const codec::CodecRef& whole_codec() {
    static const codec::CodecRef codec = codec::make(codec::parse("topk ratio=1").value());
    return codec;
  }
  void encode(std::span<const double> values, table::Request& request) const {
    auto pieces = table::plan_all(model_->spec(), count(MV_ROLE_SERVER));
    std::vector<std::byte> encoded(table::place_encoded(pieces, *whole_codec()));
    for (const table::ChunkRange& piece : pieces) {
      std::vector<double> nothing(piece.count);
      codec::encode_values(*whole_codec(), MV_F64, std::as_bytes(values.subspan(piece.offset)).data(),
                           std::as_writable_bytes(std::span(nothing)).data(), piece.count,
                           encoded.data() + piece.encoded_at);
    }
    request.codec = whole_codec();
    request.source = base::Payload::copy(encoded);
  }

  void get(Node& node) {
    const bool many = is_many() && random_.chance(0.5);
    const auto call = std::make_shared<Call>(*this, node, many ? 0 : random_.below(tables_));
    ++node.gets;
    call->is_get = true;
    call->values.resize(many ? tables_ : 1, std::vector<double>(model_->spec().elements()));
    table::Request request;
    if (many) {
      for (size_t i = 0; i < tables_; ++i) request.many.push_back({node.tables[i], std::as_writable_bytes(std::span(call->values[i]))});
      request.server = home();
      return begin(call, std::move(request));
    }
    for (int64_t row = 0; row < static_cast<int64_t>(model_->spec().rows); ++row) request.rows.push_back(row);
    request.all = !model_->spec().is_keyed() && random_.chance(0.5);
    if (request.all) request.rows.clear();
    request.priority = static_cast<int64_t>(random_.below(3));
    const bool whole = model_->spec().updater.name == "add" || model_->spec().updater.name == "replace";
    if (request.all && whole && random_.chance(0.4)) request.codec = whole_codec();
    request.destination = std::as_writable_bytes(std::span(call->values.front()));
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
      ++node.known[call.first];
      return;
    }
    const uint64_t cols = model_->spec().cols;
    for (size_t i = 0; i < call.values.size(); ++i)
      for (size_t server = 0; server < count(MV_ROLE_SERVER); ++server) {
        const size_t table = call.first + i;
        std::vector<double> values;
        for (const int64_t row : model_->rows_of(server))
          for (uint64_t col = 0; col < cols; ++col) values.push_back(call.values[i][static_cast<uint64_t>(row) * cols + col]);
        check(name(node) + "'s get", table, server, values, std::max(call.own, call.seen[table][server]), false, &node.seen[table][server]);
      }
  }

  // ---- checks

  /// `whole`: all existing rounds, and no fewer.
  void check(const std::string& who, size_t table, size_t server, std::span<const double> values, uint64_t least, bool whole, uint64_t* seen) {
    // A round is merged stripe by stripe, and a get is answered by stripes or by rows, so some elements may include a later round than
    // others.
    const uint64_t stripe = shard::stripe_elements(model_->spec()), cols = model_->spec().cols;
    uint64_t rounds = UINT64_MAX;
    for (uint64_t first = 0, end = 0; first < values.size(); first = end) {
      end = std::min({(first / stripe + 1) * stripe, (first / cols + 1) * cols, values.size()});
      rounds = std::min(rounds, check_some(who, table, server, values, {first, end - first}, least, whole));
    }
    const bool killed = victim_ < nodes_.size() && nodes_[victim_].killed;
    if (seen != nullptr && !killed && rounds != UINT64_MAX) *seen = std::max(*seen, rounds);
  }

  static uint64_t known_of(const Node& node, size_t table) { return table < node.known.size() ? node.known[table] : 0; }

  static uint64_t rounds_of(const RoundParts& parts) {
    uint64_t rounds = 0;
    for (const auto& lives : parts)
      for (const shard::Range& life : lives)
        if (life.count > 0) rounds = std::max(rounds, life.end());
    return rounds;
  }

  /// The number of rounds that they include.
  uint64_t check_some(const std::string& who, size_t table, size_t server, std::span<const double> values,
                      shard::Range some, uint64_t least, bool whole) {
    RoundParts parts(count(MV_ROLE_WORKER));
    uint64_t most = 0, all = UINT64_MAX;  // every worker that takes part is included
    shard::Range* of_killed = nullptr;
    for (const Node& node : nodes_) {
      if (node.tables.empty()) continue;
      if (node.number >= places_ && !parts[node.worker].empty()) {
        shard::Range& before = parts[node.worker].front();
        before.count = std::min(before.count, node.first);  // so the servers have agreed
      }
      parts[node.worker].reserve(2);
      parts[node.worker].push_back({node.first, node.begun});
      if (node.killed) of_killed = &parts[node.worker].back();
      most = std::max(most, node.first + node.begun);
      if (!node.left && !node.killed) all = std::min(all, node.first + node.begun);
    }
    shard::Range none;
    if (of_killed == nullptr) of_killed = &none;
    const uint64_t last = whole ? most : std::min(most, all), begun = of_killed->count;
    of_killed->count = victim_ < nodes_.size() ? std::min(known_of(nodes_[victim_], table), begun) : 0;
    if (of_killed == &none) of_killed->count = begun;
    for (; of_killed->count <= begun; ++of_killed->count) {  // some adds of a killed worker may never have left it
      const uint64_t found = model_->rounds_in(server, values, some, parts, whole ? rounds_of(parts) : least, whole ? rounds_of(parts) : last);
      if (found != UINT64_MAX) return found;
    }
    timeline_.violated(fmt::format("{}: server {} shows {} ... of table {}, not the result of {} .. {} rounds", who,
                                   server, values[some.first], table, least, last));
    return UINT64_MAX;
  }

  void check_part(const Node& node) {
    if ((node.role & MV_ROLE_SERVER) == 0) return;
    const cluster::View& view = node.member->cluster().view();
    for (const Node& worker : nodes_)
      if (worker.worker != SIZE_MAX && !worker.killed && node.log.executed(worker.number) != worker.commands)
        return timeline_.violated(fmt::format("{} has executed {} of {}'s {} commands", name(node),
                                              node.log.executed(worker.number), name(worker), worker.commands));
    for (const cluster::Member* server : view.servers())
      if (const table::Server* const tables = node.member->parts().tables_of(server->peer))
        check_tables(name(node) + " at the end", *tables, static_cast<size_t>(view.server_id(server->peer)));
    if (node.member->parts().tables_of(node.self.peer) == nullptr) timeline_.violated(name(node) + " has no tables");
  }

  void check_tables(const std::string& who, const table::Server& tables, size_t server) {
    for (size_t table = 0; table < tables_; ++table) {
      const auto shard = tables.find_shard(model_->spec().name + (table > 0 ? std::to_string(table) : ""));
      if (shard == nullptr) return timeline_.violated(who + " has no table");
      std::vector<int64_t> rows = model_->rows_of(server);
      std::vector<double> values(rows.size() * model_->spec().cols);
      const int64_t first = shard::first_row(model_->spec(), count(MV_ROLE_SERVER), server);
      for (int64_t& row : rows) row -= first;
      shard->read_rows(shard::kNoWorker, rows, reinterpret_cast<std::byte*>(values.data()));
      check(who, table, server, values, 0, true, nullptr);
    }
  }

  Timeline timeline_;
  Random random_;
  const size_t replicas_, places_;
  std::deque<Node> nodes_;  ///< those of the beginning, followed by replacements of killed ones
  const Conditions conditions_;
  Network network_;
  SimMachine machine_;
  const bool one_machine_;  ///< back-ups have journals
  Keeper keeper_{timeline_, network_, random_};
  std::unique_ptr<RoundModel> model_;
  size_t tables_ = 1;
  size_t victim_ = SIZE_MAX;
  size_t ready_ = 0, creators_ = 0;
  bool struck_ = false, kills_server_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  return mv::sim::run_seeds(argc, argv, "Rounds of a merging table on virtual time, with network faults from the seed.",
                            [](const mv::sim::SeedRun& asked) { return Rounds(asked).run(); },
                            [](const mv::sim::SeedRun& of) { return Rounds(of).describe(); });
}
