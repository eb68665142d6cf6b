#include "engine/table/client/catalogue.hpp"

#include <algorithm>
#include <cstring>

#include "base/undo.hpp"
#include "engine/table/client/client.hpp"
#include "engine/table/client/round.hpp"
#include "engine/table/spec_wire.hpp"

namespace mv::table {

void Catalogue::know(TableView& table) const {
  table.consistency = table.spec.consistency(servers_.view->sync, servers_.view->workers().size());
  if (shard::is_small_key(table.spec)) table.queue = std::hash<std::string_view>()(table.spec.store()) | uint64_t{1} << 63;
}

/// Replaces a table of the same name that the servers have destroyed.
void Catalogue::remember(const TableViewRef& table) {
  const auto [known, is_new] = tables_.try_emplace(table->spec.name, table);
  if (is_new) return;
  const TableViewRef before = known->second;  // owns the key's name
  tables_.erase(known);
  tables_.try_emplace(table->spec.name, table);
}

/// Takes over this worker's progress from the servers. A worker that joins a stale-synchronous table starts where the
/// others were when it opened the table on each server. It begins at the latest of these points, and reports that to all
/// servers. Until then, each server lets the others continue no further than to its own point, so none of them passes the
/// latest one. In tables with counted calls it begins later, see Entry.
void Catalogue::take_progress(const TableViewRef& table, const std::vector<Counts>& by_server) {
  Counts most;
  for (const Counts& one : by_server) most = later(most, one);
  table->clock = most.clock;
  table->round = most.gets;
  table->index = most.adds;
  table->told_clock = most.clock;
  table->adds_at_get = table->adds(most);
  table->first = most;
  if (std::ranges::any_of(by_server, [&](const Counts& one) { return one.clock != most.clock; })) clock(table, most.clock);
}

// ---- creation

namespace {
/// Specs in one message, and bytes of initial values with them: enough that the cost per message is small, few enough
/// that a server can serve others between two messages.
constexpr size_t kSpecsAtOnce = 512;
constexpr size_t kValuesAtOnce = 256 << 10;
/// Larger initial values are sent separately, like any change.
constexpr size_t kLargeValue = 64 << 10;
/// Table numbers in one message.
constexpr size_t kNumbersAtOnce = 1 << 16;

/// Reports how a part of a creation ended.
class Heard final : public base::Operation {
 public:
  explicit Heard(std::function<void(const base::Status&)> then) : then_(std::move(then)) {}

 private:
  void ended(const base::Status& status) override { then_(status); }

  std::function<void(const base::Status&)> then_;
};
}  // namespace

/// The creation of the tables of one call, all of them or none. There are three steps, each with all its messages at
/// once: register the specs, with worker 0's small initial values; worker 0 sets the large ones; wait for all workers.
class Catalogue::Creation : public std::enable_shared_from_this<Creation> {
 public:
  Creation(Catalogue& catalogue, std::vector<NewTable> tables, base::Nanos deadline, Created created)
      : catalogue_(catalogue), servers_(catalogue.servers_), asked_(std::move(tables)), deadline_(deadline), created_(std::move(created)) {}

  void start() {
    if (const std::string* const taken = claim_names())
      return created_(base::error(MV_EDISAGREE, "table \"{}\" is already being created by another call", *taken));
    tables_.reserve(asked_.size());
    for (const NewTable& asked : asked_) {
      tables_.push_back(std::make_shared<TableView>(asked.spec, servers_.shared));
      catalogue_.know(*tables_.back());
    }
    exists_.resize(tables_.size());
    outside_.resize(tables_.size());
    step([this] { set_large_values(); });
    for (size_t first = 0; first < tables_.size();) {
      size_t end = first, bytes = 0;
      while (end < tables_.size() && end < first + kSpecsAtOnce && bytes < kValuesAtOnce) bytes += travels_along(end) ? asked_[end].initial->size() : 0, ++end;
      register_some(first, end);
      first = end;
    }
    step_over({});
  }

  bool makes(const std::string& name) const {
    return std::ranges::any_of(asked_, [&](const NewTable& asked) { return asked.spec->name == name; });
  }
  /// Ends it as if its deadline had passed.
  void expire() {
    for (const auto& weak : std::vector(rounds_))
      if (const auto round = weak.lock()) round->expire();
  }

 private:
  /// Claims the names: two views of one table would count this worker's calls twice. Returns a name that another
  /// creation has claimed, and then claims none.
  const std::string* claim_names() {
    base::expect_names(catalogue_.creating_, asked_.size());
    size_t claimed = 0;
    base::Undo unclaim([&] {
      while (claimed > 0) catalogue_.creating_.erase(asked_[--claimed].spec->name);
    });
    for (; claimed < asked_.size(); ++claimed)
      if (const std::string& name = asked_[claimed].spec->name; !catalogue_.creating_.insert(name).second) return &name;
    catalogue_.creations_.push_back(shared_from_this());
    unclaim.keep();
    return nullptr;
  }

  /// Sets what follows when all parts of a step have succeeded. The step itself counts as one part until it is begun.
  void step(std::function<void()> next) {
    open_ = 1;
    next_ = std::move(next);
  }
  void step_over(const base::Status& status) {
    if (!status.ok() && error_.ok()) error_ = status;
    if (--open_ > 0) return;
    rounds_.clear();
    error_.ok() ? std::exchange(next_, nullptr)() : end();
  }
  std::function<void(const base::Status&)> part() {
    ++open_;
    return [self = shared_from_this()](const base::Status& status) { self->step_over(status); };
  }

  bool travels_along(size_t at) const { return asked_[at].initial != nullptr && asked_[at].initial->size() <= kLargeValue; }

  void register_some(size_t first, size_t end) {
    const auto each = [self = shared_from_this(), first](size_t server, const wire::Message& answer, std::span<const std::byte>) {
      const auto* created = answer.body_as_Created();
      if (created != nullptr && created->tables() != nullptr) self->registered(server, first, *created->tables());
    };
    std::make_shared<Round>(servers_, servers_.peers, each, part())
        ->ask([this, first, end](wire::FrameBuilder& builder, size_t server) { return registration(builder, server, first, end); }, deadline_);
  }

  base::Frame registration(wire::FrameBuilder& builder, size_t server, size_t first, size_t end) {
    auto& fbb = builder.fbb();
    SpecWriter writer(fbb);
    std::vector<flatbuffers::Offset<wire::TableSpec>> specs;
    std::vector<uint8_t> holds, initial, values;
    size_t bytes = 0;
    for (size_t i = first; i < end; ++i) {
      const shard::Spec& spec = tables_[i]->spec;
      specs.push_back(writer.write(spec));
      holds.push_back(catalogue_.tables_.contains(spec.name) ? 1 : 0);
      initial.push_back(asked_[i].given ? 1 : 0);
      values.push_back(travels_along(i) ? 1 : 0);
      if (travels_along(i)) bytes += part_of_initial(i, server).size();
    }
    const auto vector_of = [&fbb](const std::vector<uint8_t>& flags) {
      return std::ranges::find(flags, 1) != flags.end() ? fbb.CreateVector(flags) : flatbuffers::Offset<flatbuffers::Vector<uint8_t>>();
    };
    const auto body = wire::CreateCreate(fbb, fbb.CreateVector(specs), vector_of(holds), vector_of(initial), vector_of(values));
    if (bytes == 0) return builder.finish(wire::Body::Create, body);
    const base::Pool::Block block = servers_.pool.take(bytes);
    std::byte* to = block.bytes.data();
    for (size_t i = first; i < end; ++i) {
      if (!travels_along(i)) continue;
      const auto from = part_of_initial(i, server);
      if (!from.empty()) std::memcpy(to, from.data(), from.size());
      to += from.size();
    }
    return builder.finish(wire::Body::Create, body, base::Payload::kept(block.bytes, block.memory));
  }

  std::span<const std::byte> part_of_initial(size_t at, size_t server) const {
    const shard::Spec& spec = tables_[at]->spec;
    const shard::Range rows = shard::part_of(spec, servers_.peers.size(), server);
    return asked_[at].initial->bytes().subspan(rows.first * spec.row_bytes(), rows.count * spec.row_bytes());
  }

  void registered(size_t server, size_t first, const flatbuffers::Vector<const wire::CreatedTable*>& created) {
    const size_t count = std::min<size_t>(created.size(), tables_.size() - first);
    for (size_t i = 0; i < count; ++i) {
      const wire::CreatedTable& one = *created.Get(static_cast<uint32_t>(i));
      TableView& table = *tables_[first + i];
      table.numbers[server] = one.table();
      if (one.exists()) exists_[first + i] = true;  // this worker has joined later than the others
      if (one.newcomer()) ++outside_[first + i];
      const Counts progress{one.clock(), one.gets(), one.adds()};
      if (progress != Counts() || !progress_.empty()) progress_.resize(tables_.size());
      if (!progress_.empty()) progress_[first + i].resize(servers_.peers.size());
      if (!progress_.empty()) progress_[first + i][server] = progress;
    }
  }

  void set_large_values() {
    step([this] { wait_for_all(); });
    for (size_t i = 0; i < tables_.size(); ++i) {
      if (asked_[i].initial == nullptr || travels_along(i) || exists_[i]) continue;
      Request request;
      request.table = tables_[i];
      request.kind = OpKind::kChange;
      request.write = wire::Write::Set;
      request.source = asked_[i].initial;
      request.operation = std::make_shared<Heard>(part());
      request.operation->set_deadline(deadline_);
      tables_[i]->open_changes.fetch_add(1, std::memory_order_relaxed);
      catalogue_.client_.begin(std::move(request));
    }
    step_over({});
  }

  void wait_for_all() {
    step([this] { end(); });
    for (size_t first = 0; first < tables_.size(); first += kNumbersAtOnce) {
      const auto round = std::make_shared<Round>(servers_, servers_.peers, Round::Each(), part());
      rounds_.push_back(round);
      round->ask(
          [this, first](wire::FrameBuilder& builder, size_t server) {
            return builder.finish(wire::Body::Ready, wire::CreateReady(builder.fbb(), builder.fbb().CreateVector(numbers_on(server, first))));
          },
          deadline_);
    }
    step_over({});
  }

  std::vector<uint32_t> numbers_on(size_t server, size_t first) const {
    std::vector<uint32_t> numbers;
    for (size_t i = first; i < std::min(first + kNumbersAtOnce, tables_.size()); ++i)
      if (tables_[i]->numbers[server] != TableView::kNoNumber) numbers.push_back(tables_[i]->numbers[server]);
    return numbers;
  }

  void end() {
    if (!error_.ok() && !std::exchange(is_given_up_, true)) return give_up();
    const auto self = shared_from_this();
    for (const NewTable& asked : asked_) catalogue_.creating_.erase(asked.spec->name);
    std::erase(catalogue_.creations_, self);
    if (!error_.ok()) {
      catalogue_.client_.entry().tables_changed();
      return created_(error_);
    }
    base::expect_names(catalogue_.tables_, tables_.size());
    for (size_t i = 0; i < tables_.size(); ++i) {
      catalogue_.remember(tables_[i]);
      if (!catalogue_.client_.entry().opened(tables_[i], outside_[i]) && !progress_.empty()) catalogue_.take_progress(tables_[i], progress_[i]);
    }
    catalogue_.client_.entry().tables_changed();
    created_(std::move(tables_));
  }

  /// An error at one server, or with one table, fails everywhere. After a time-out the tables may still be created. All servers know it before
  /// the caller does: when all workers have had the error, the names are free.
  void give_up() {
    step({});
    if (error_.code() != MV_ETIMEOUT && error_.code() != MV_ECANCELED)
      for (size_t first = 0; first < tables_.size(); first += kNumbersAtOnce) give_up_some(first);
    step_over({});
  }

  void give_up_some(size_t first) {
    std::vector<base::Peer> peers;
    std::vector<std::vector<uint32_t>> numbers;
    for (size_t server = 0; server < servers_.peers.size(); ++server) {
      auto some = numbers_on(server, first);
      if (some.empty()) continue;
      peers.push_back(servers_.peers[server]);
      numbers.push_back(std::move(some));
    }
    if (peers.empty()) return;
    const auto round = std::make_shared<Round>(servers_, std::move(peers), Round::Each(), part());
    rounds_.push_back(round);
    round->ask(
        [this, &numbers](wire::FrameBuilder& builder, size_t server) {
          auto& fbb = builder.fbb();
          const auto text = fbb.CreateString(error_.text());
          return builder.finish(wire::Body::GiveUp, wire::CreateGiveUp(fbb, fbb.CreateVector(numbers[server]), error_.code(), text));
        },
        deadline_);
  }

  Catalogue& catalogue_;
  Servers& servers_;
  std::vector<NewTable> asked_;
  std::vector<TableViewRef> tables_;
  const base::Nanos deadline_;
  const Created created_;
  std::vector<bool> exists_;
  std::vector<size_t> outside_;                  ///< by table: on how many servers this worker is a newcomer there
  std::vector<std::vector<Counts>> progress_;  ///< this worker's, by table and server; empty: all 0
  std::vector<std::weak_ptr<Round>> rounds_;     ///< of the last step
  std::function<void()> next_;
  size_t open_ = 0;  ///< parts of this step
  base::Status error_;
  bool is_given_up_ = false;
};

Catalogue::~Catalogue() = default;

void Catalogue::create(std::vector<NewTable> tables, base::Nanos deadline, Created created) {
  std::make_shared<Creation>(*this, std::move(tables), deadline, std::move(created))->start();
}

void Catalogue::give_up_creation(const std::string& name) {
  if (!creating_.contains(name)) return;
  for (const auto& creation : std::vector(creations_))
    if (creation->makes(name)) creation->expire();
}

void Catalogue::open(const std::string& name, base::Nanos deadline, Opened opened) {
  /// The servers' answers.
  struct Found {
    explicit Found(size_t servers) : numbers(servers) {}
    std::vector<uint32_t> numbers;
    std::vector<Counts> progress;
    size_t outside = 0;  ///< on how many servers this worker is a newcomer there
    shard::Spec spec;
  };
  const auto found = std::make_shared<Found>(servers_.peers.size());
  const auto each = [found](size_t server, const wire::Message& answer, std::span<const std::byte>) {
    const auto* created = answer.body_as_Created();
    if (created == nullptr || created->spec() == nullptr || created->tables() == nullptr || created->tables()->size() != 1) return;
    const wire::CreatedTable& table = *created->tables()->Get(0);
    found->numbers[server] = table.table();
    found->progress.push_back({table.clock(), table.gets(), table.adds()});
    if (table.newcomer()) ++found->outside;
    found->spec = read_spec(*created->spec());
  };
  const auto done = [this, found, opened, name](const base::Status& status) {
    if (!status.ok()) {
      if (status.code() == MV_ENOTFOUND) {
        tables_.erase(name);
        client_.entry().tables_changed();
      }
      return opened(status);
    }
    const auto known = tables_.find(name);
    if (known != tables_.end() && known->second->numbers == found->numbers) return opened(known->second);
    const auto table = std::make_shared<TableView>(std::make_shared<const shard::Spec>(std::move(found->spec)), servers_.shared);
    table->numbers = found->numbers;
    know(*table);
    remember(table);
    if (!client_.entry().opened(table, found->outside)) take_progress(table, found->progress);
    client_.entry().tables_changed();
    opened(table);
  };
  std::make_shared<Round>(servers_, servers_.peers, each, done)
      ->ask(
          [name](wire::FrameBuilder& builder, size_t) {
            const auto written = builder.fbb().CreateString(name);
            return builder.finish(wire::Body::Open, wire::CreateOpen(builder.fbb(), written));
          },
          deadline);
}

void Catalogue::list(base::Nanos deadline, std::function<void(base::Result<std::vector<shard::Spec>>)> listed) {
  auto specs = std::make_shared<std::vector<shard::Spec>>();
  const auto each = [specs](size_t, const wire::Message& answer, std::span<const std::byte>) {
    const auto* listing = answer.body_as_Listing();
    if (listing == nullptr || listing->tables() == nullptr) return;
    for (const wire::TableSpec* spec : *listing->tables()) specs->push_back(read_spec(*spec));
  };
  const auto done = [specs, listed](const base::Status& status) {
    if (status.ok())
      listed(std::move(*specs));
    else
      listed(status);
  };
  const std::vector<base::Peer> first_server(servers_.peers.begin(), servers_.peers.begin() + 1);
  std::make_shared<Round>(servers_, first_server, each, done)
      ->ask([](wire::FrameBuilder& builder, size_t) { return builder.finish(wire::Body::List, wire::CreateList(builder.fbb())); }, deadline);
}

void Catalogue::destroy(const TableViewRef& table, base::OperationRef operation) {
  const auto known = tables_.find(table->spec.name);
  if (known != tables_.end() && known->second == table) tables_.erase(known);
  client_.entry().tables_changed();
  std::make_shared<Round>(servers_, table->servers, Round::Each(), [operation](const base::Status& status) { operation->complete(status); })
      ->ask(
          [table](wire::FrameBuilder& builder, size_t server) {
            return builder.finish(wire::Body::Destroy, wire::CreateDestroy(builder.fbb(), table->numbers[server]));
          },
          operation->deadline());
}

// ---- clocks and updaters

void Catalogue::clock(const TableViewRef& table, uint64_t clock) {
  if (clock != UINT64_MAX) {
    client_.entry().before(table, wire::Counted::Clock);
    table->told_clock = clock;
  }
  const uint64_t id = changes_.begin();
  table->open_changes.fetch_add(1, std::memory_order_relaxed);
  const auto tell = [this, table, clock, id] {
    if (clock == UINT64_MAX) {
      table->has_left = true;
      client_.entry().tables_changed();
    }
    tell_clock(table, clock, id);
  };
  if (!client_.entry().keeps(*table)) return tell();
  client_.entry().keep(table, tell, clock != UINT64_MAX ? std::optional(wire::Counted::Clock) : std::nullopt);
}

void Catalogue::tell_clock(const TableViewRef& table, uint64_t own, uint64_t id) {
  const auto done = [this, table, id](const base::Status& status) {
    changes_.note(*table, status);
    changes_.over(*table, id);
  };
  const uint64_t clock = own == UINT64_MAX ? own : own + table->clock_base;
  const auto question = [table, clock](wire::FrameBuilder& builder, size_t server) {
    return builder.finish(wire::Body::Clock, wire::CreateClock(builder.fbb(), table->numbers[server], clock));
  };
  std::make_shared<Round>(servers_, table->servers, Round::Each(), done)->tell(question);
}

std::map<std::string, uint64_t> Catalogue::clocks() const {
  std::map<std::string, uint64_t> clocks;
  for (const auto& [name, table] : tables_)
    if (!table->is_newcomer) clocks.emplace(name, table->now());
  return clocks;
}

void Catalogue::set_clock(const std::string& table, uint64_t clock) {
  const auto known = tables_.find(table);
  if (known == tables_.end() || known->second->is_newcomer) return;  // it takes the others' clock when it begins
  known->second->clock_base = 0;
  known->second->clock = known->second->told_clock = clock;
  if (known->second->consistency == shard::Consistency::kMerge) known->second->adds_at_get = clock;
}

void Catalogue::set_updater(const TableViewRef& table, const shard::UpdaterSpec& updater, size_t skip, base::OperationRef operation) {
  const uint64_t id = changes_.begin();
  const auto done = [this, table, id, operation](const base::Status& status) {
    operation->complete(status);
    changes_.over(*table, id);
  };
  const auto question = [table, updater](wire::FrameBuilder& builder, size_t server) {
    const auto written = write_updater(builder.fbb(), updater);
    return builder.finish(wire::Body::SetUpdater, wire::CreateSetUpdater(builder.fbb(), table->numbers[server], written));
  };
  const auto tell = [this, table, done, question, operation, skip] {
    std::make_shared<Round>(servers_, table->servers, Round::Each(), done)->tell(question, operation->deadline(), skip);
  };
  client_.entry().keeps(*table) ? client_.entry().keep(table, tell) : tell();
}

}  // namespace mv::table
