#include "engine/table/client/entry.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "engine/table/client/round.hpp"

namespace mv::table {

namespace {
/// Tables in one message.
constexpr size_t kTablesAtOnce = 16 << 10;
/// Of all tables of a host in one message.
constexpr size_t kMostBytes = 8 << 20;
/// Adds of a host that has never read the table all seem to belong to one step: at most so many in a row, and so many
/// with adds to other tables between them. kMostUnread: of one that has read it before.
constexpr int kMostInARow = 64, kMostPassed = 8, kMostUnread = 4096;
constexpr std::array<const char*, 3> kCallNames = {"add", "get", "clock"};  // by wire::Counted
}  // namespace

// ---- calls that wait

bool Entry::drop(const rpc::Pending* pending) {
  return std::erase_if(kept_, [&](const Kept& kept) { return kept.call.pending.get() == pending; }) > 0;
}

bool Entry::expire(const rpc::Pending* pending) {
  const auto found = std::ranges::find_if(kept_, [&](const Kept& kept) { return kept.call.pending.get() == pending; });
  if (found == kept_.end()) return false;
  const rpc::PendingRef ended = std::move(found->call.pending);
  const std::string name = found->tables.front()->spec.name;
  kept_.erase(found);
  ended->finish(base::error(MV_ETIMEOUT, "table \"{}\": {}", name, reason()), nullptr, {});
  return true;
}

void Entry::given_up() {
  if (!is_waiting_ || !wanted_->is_newcomer || entered_ != nullptr) return;
  const auto first = std::ranges::find_if(kept_, [](const Kept& kept) {
    return kept.counted.has_value() && std::ranges::any_of(kept.tables, [](const TableViewRef& table) { return table->is_newcomer; });
  });
  if (first != kept_.end() && first->counted == wants_ && is_on(*first, *wanted_)) return;
  is_asking_ ? want_another() : void(is_withdrawn_ = true);
}

std::string Entry::reason() const {
  if (is_waiting_ && host_ != base::kNobody)
    return fmt::format("this worker has joined later, and begins with the next {} of {} on table \"{}\", which has not come",
                       kCallNames[static_cast<size_t>(wants_)], servers_.name(host_), wanted_->spec.name);
  return fmt::format("{} has not begun", stopped_for_ != base::kNobody ? servers_.name(stopped_for_) : "this worker");
}

void Entry::release() {
  for (size_t i = 0; i < kept_.size();) {
    if (std::ranges::any_of(kept_[i].tables, [this](const TableViewRef& table) { return keeps(*table); })) {
      ++i;
      continue;
    }
    Kept kept = std::move(kept_[i]);
    kept_.erase(kept_.begin() + static_cast<ptrdiff_t>(i));
    kept.send ? kept.send() : servers_.rpc.call(kept.server, std::move(kept.call));
  }
}

// ---- the host

void Entry::before_call(const TableViewRef& table, wire::Counted call) {
  if (table->is_newcomer && is_destroyed(table)) {
    table->is_newcomer = false;  // the call fails
    return;
  }
  if (table->is_newcomer) return is_waiting_ ? void() : enter(table, call, nullptr);
  auto first = asks_.end();
  for (auto ask = asks_.begin(); ask != asks_.end(); ++ask) {
    const bool is_meant = ask->table == table->numbers.front() && ask->call == call;
    if (is_meant && begins_step(*table, call, *ask) && first == asks_.end()) first = ask;  // all of them count this call
  }
  if (first == asks_.end() || stopped_for_ != base::kNobody) return;
  const Ask one = *first;
  asks_.erase(first);
  stop_for(one);
}

/// Whether the call can be the first one of a program's step, as the newcomer's is: a step may add to a table several
/// times before it reads it.
bool Entry::begins_step(const TableView& table, wire::Counted call, Ask& ask) const {
  if (call != wire::Counted::Add) return true;
  const uint64_t at_get = table.adds_at_get;
  if (table.adds({table.clock, table.round, table.index}) == at_get) return true;
  const bool has_read = at_get != table.adds(table.first);
  return ++ask.passed > (has_read ? kMostUnread : last_added_ == &table ? kMostInARow : kMostPassed);
}

void Entry::stop_for(const Ask& ask) {
  std::vector<std::byte> points;
  const auto append = [&](const auto& value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    points.insert(points.end(), bytes.begin(), bytes.end());
  };
  for (const auto& [name, table] : tables_) {
    if (!has_rounds(*table) || table->is_newcomer || table->has_left) continue;
    for (const uint32_t number : table->numbers) append(number);
    const uint64_t clock = table->consistency == shard::Consistency::kStale ? table->told_clock + table->clock_base : table->clock.load();
    append(Counts{clock, table->round, table->index});
  }
  if (points.size() > kMostBytes) return answers_->fail(ask.asked, base::Status(MV_ENOSYS, "it has too many tables to name them"));
  stopped_for_ = ask.asked.client;
  answers_->answer(ask.asked, builder_.finish(wire::Body::Stopped, wire::CreateStopped(builder_.fbb()), base::Payload::copy(points)));
}

void Entry::go_on() {
  stopped_for_ = base::kNobody;
  release();
}

void Entry::on_request(rpc::Server& by, const rpc::Asked& asked, const wire::Message& request) {
  answers_ = &by;
  if (request.body_type() == wire::Body::GoOn) {
    by.answer(asked, builder_.answer({}));
    if (asked.client == stopped_for_) go_on();
    return;
  }
  const auto* enter = request.body_as_Enter();
  Ask ask{asked, enter->table(), enter->call()};
  const auto older = std::ranges::find_if(asks_, [&](const Ask& one) { return one.asked.client == asked.client; });
  if (older != asks_.end()) {
    by.fail(older->asked, base::Status(MV_ECANCELED, "the same worker has asked again"));
    if (older->table == ask.table && older->call == ask.call) ask.passed = older->passed;
    asks_.erase(older);
  }
  asks_.push_back(ask);
  refuse();
}

/// Why this worker can't be the host.
base::Status Entry::why_not(const Ask& ask) const {
  const auto known = std::ranges::find_if(tables_, [&](const auto& entry) { return entry.second->numbers.front() == ask.table; });
  if (known == tables_.end()) return is_creating_() ? base::Status() : base::Status(MV_ENOTFOUND, "it has not opened this table");
  const TableView& table = *known->second;
  if (!has_rounds(table) || table.has_left) return base::Status(MV_ENOTFOUND, "it makes no counted calls on this table");
  // Of two newcomers that want to begin, the one with the smaller id goes first.
  const bool goes_later = !is_waiting_ || servers_.view->worker_id(self_) > servers_.view->worker_id(ask.asked.client);
  return table.is_newcomer && goes_later ? base::Status(MV_EDISAGREE, "it has not begun either") : base::Status();
}

void Entry::refuse() {
  for (const Ask& ask : std::vector(asks_)) {
    const base::Status why = why_not(ask);
    if (why.ok()) continue;
    std::erase_if(asks_, [&](const Ask& other) { return other.asked == ask.asked; });
    answers_->fail(ask.asked, why);
  }
}

bool Entry::is_destroyed(const TableViewRef& table) const {
  const auto known = tables_.find(table->spec.name);
  return known == tables_.end() || known->second != table;
}

/// This worker does not begin with that call on `wanted_`, which is destroyed or was given up.
void Entry::want_another() {
  ++attempt_;
  if (is_destroyed(wanted_)) wanted_->is_newcomer = false;
  is_waiting_ = is_asking_ = false;
  host_ = base::kNobody;
  if (!enter_with_kept()) release();
  if (!asks_.empty()) refuse();  // newcomers that expected this one to go first
}

/// Enters with the first call here that is on a table where this worker has not begun. False if there is none.
bool Entry::enter_with_kept() {
  for (const Kept& kept : kept_) {
    if (!kept.counted) continue;
    const auto next = std::ranges::find_if(kept.tables, [this](const TableViewRef& table) { return table->is_newcomer && !is_destroyed(table); });
    if (next == kept.tables.end()) continue;
    const TableViewRef table = *next;
    enter(table, *kept.counted, std::exchange(entered_, nullptr));
    release();  // calls on other tables
    return true;
  }
  return false;
}

void Entry::tables_changed() {
  if (is_asking_ && is_destroyed(wanted_)) want_another();
  if (!back_.empty()) tell(std::exchange(back_, {}), false, [](const base::Status&) {});
  if (!asks_.empty()) refuse();
}

void Entry::on_cancel(rpc::Server& by, const rpc::Asked& asked) {
  if (std::erase_if(asks_, [&](const Ask& ask) { return ask.asked == asked; }) > 0) by.fail(asked, base::Status(MV_ETIMEOUT, "it has made no such call"));
}

void Entry::gone(base::Peer peer) {
  std::erase_if(asks_, [&](const Ask& ask) { return ask.asked.client == peer; });
  if (stopped_for_ == peer) go_on();
  if (is_asking_ && host_ == peer) ask_next();
}

// ---- the newcomer

void Entry::enter(const TableViewRef& table, wire::Counted call, std::function<void()> entered) {
  is_waiting_ = true;
  wanted_ = table;
  wants_ = call;
  entered_ = std::move(entered);
  is_withdrawn_ = false;
  asked_.clear();
  ask_next();
}

/// Asks the next worker. With no more workers to ask, begins where the servers are.
void Entry::ask_next() {
  const uint64_t attempt = ++attempt_;
  points_.clear();
  is_asking_ = false;
  for (const cluster::Member* worker : servers_.view->workers()) {
    if (worker->peer == self_ || worker->state != cluster::MemberState::kHere || worker->is_out || !asked_.insert(worker->peer).second) continue;
    host_ = worker->peer;
    is_asking_ = true;
    const auto each = [this, attempt](size_t, const wire::Message& answer, std::span<const std::byte> payload) {
      if (attempt == attempt_ && answer.body_type() == wire::Body::Stopped) read_points(payload);
    };
    const auto done = [this, attempt, host = host_](const base::Status& status) {
      const bool is_over = attempt != attempt_;
      if (!is_over) is_asking_ = false;
      if (status.ok() && (is_over || points_.empty())) tell_go_on(host);
      if (is_over) return;
      if (!status.ok() || points_.empty()) return ask_next();
      leave_out_others();
      tell(points_, true, [this](const base::Status& begun) { begin_as_host(begun); });
    };
    std::make_shared<Round>(servers_, servers_.processes, std::vector{host_}, each, done)
        ->ask(
            [this](wire::FrameBuilder& builder, size_t) {
              return builder.finish(wire::Body::Enter, wire::CreateEnter(builder.fbb(), wanted_->numbers.front(), wants_));
            },
            base::kNever);
    return;
  }
  host_ = base::kNobody;
  begin_as_host({});
}

/// No points if the payload is not what a host sends.
void Entry::read_points(std::span<const std::byte> payload) {
  const size_t numbers = servers_.peers.size(), stride = numbers * sizeof(uint32_t) + sizeof(Counts);
  if (payload.size() % stride != 0) return;
  points_.resize(payload.size() / stride);
  for (Point& point : points_) {
    point.numbers.resize(numbers);
    std::memcpy(point.numbers.data(), payload.data(), numbers * sizeof(uint32_t));
    std::memcpy(&point.counts, payload.data() + numbers * sizeof(uint32_t), sizeof(Counts));
    payload = payload.subspan(stride);
  }
}

/// Leaves out the tables on which this worker has begun already, or has left the rounds.
void Entry::leave_out_others() {
  std::unordered_map<uint32_t, const TableView*> by_number;
  for (const auto& [name, table] : tables_) by_number[table->numbers.front()] = table.get();
  std::erase_if(points_, [&](const Point& point) {
    const auto known = by_number.find(point.numbers.front());
    return known != by_number.end() ? !known->second->is_newcomer || known->second->has_left : begun_.contains(point.numbers.front());
  });
}

/// Tells all servers where this worker begins, or that it does not begin there.
void Entry::tell(const std::vector<Point>& points, bool begin, const Then& then) {
  const auto open = std::make_shared<size_t>((points.size() + kTablesAtOnce - 1) / kTablesAtOnce);
  const auto error = std::make_shared<base::Status>();
  if (*open == 0) return then({});
  for (size_t first = 0; first < points.size(); first += kTablesAtOnce) {
    const auto some = std::span(points).subspan(first, std::min(kTablesAtOnce, points.size() - first));
    const auto done = [open, error, then](const base::Status& status) {
      if (!status.ok() && (error->ok() || status.code() == MV_EDISAGREE)) *error = status;
      if (--*open == 0) then(*error);
    };
    const auto question = [some, begin](wire::FrameBuilder& builder, size_t server) {
      std::vector<uint32_t> tables;
      std::vector<uint64_t> clocks, gets, adds;
      for (const Point& point : some) {
        if (point.numbers[server] == TableView::kNoNumber) continue;
        tables.push_back(point.numbers[server]);
        clocks.push_back(begin ? point.counts.clock : UINT64_MAX);
        gets.push_back(point.counts.gets);
        adds.push_back(point.counts.adds);
      }
      auto& fbb = builder.fbb();
      return builder.finish(wire::Body::Begin, wire::CreateBeginDirect(fbb, &tables, &clocks, &gets, &adds));
    };
    const auto round = std::make_shared<Round>(servers_, servers_.peers, Round::Each(), done);
    round->overtake();
    round->ask(question, base::kNever);
  }
}

/// All servers know where this worker begins, or one of them refuses.
void Entry::begin_as_host(const base::Status& status) {
  const bool is_passed = status.code() == MV_EDISAGREE;
  if (is_passed || is_withdrawn_) return begin_nowhere();
  std::set<uint32_t> numbers;
  for (const Point& point : points_) numbers.insert(point.numbers.front());
  std::vector<TableViewRef> others;
  for (const auto& [name, table] : tables_)
    if (table->is_newcomer && !table->has_left && !numbers.contains(table->numbers.front())) others.push_back(table);
  others.empty() ? begin_everywhere() : begin_here(std::move(others));
}

/// All servers have been told.
void Entry::begin_everywhere() {
  if (is_withdrawn_) return begin_nowhere();
  std::unordered_map<uint32_t, const Counts*> by_number;
  for (const Point& point : points_) by_number[point.numbers.front()] = &point.counts;
  for (const auto& [name, table] : tables_) {
    const auto known = by_number.find(table->numbers.front());
    if (table->has_left) table->is_newcomer = false;  // nobody waits for it there
    if (known == by_number.end()) continue;
    if (table->is_newcomer) begin_at(*table, *known->second);
    by_number.erase(known);
  }
  for (const auto& [number, counts] : by_number) begun_[number] = *counts;
  if (is_destroyed(wanted_)) wanted_->is_newcomer = false;  // its calls fail
  over();
}

/// Steps back on all tables for which servers have been told where it begins.
void Entry::begin_nowhere() {
  tell(points_, false, [this](const base::Status&) {
    asked_.erase(host_);
    over();
  });
}

/// Begins where the servers are: at the latest of their points. Until then, each server lets the others continue no further
/// than to its own point.
void Entry::begin_here(std::vector<TableViewRef> tables) {
  std::vector<TableViewRef> rest(tables.begin() + static_cast<ptrdiff_t>(std::min(tables.size(), kTablesAtOnce)), tables.end());
  tables.resize(tables.size() - rest.size());
  const auto found = std::make_shared<std::vector<Point>>(tables.size());
  const auto here = std::make_shared<std::vector<std::vector<Counts>>>(tables.size());  // as the servers tell
  for (size_t i = 0; i < tables.size(); ++i) (*found)[i].numbers = tables[i]->numbers;
  const auto each = [found, here](size_t server, const wire::Message& answer, std::span<const std::byte>) {
    const auto* created = answer.body_as_Created();
    if (created == nullptr || created->tables() == nullptr) return;
    std::unordered_map<uint32_t, Point*> by_number;
    for (Point& point : *found) by_number[point.numbers[server]] = &point;
    for (const wire::CreatedTable* one : *created->tables()) {
      const auto known = by_number.find(one->table());
      if (known == by_number.end()) continue;
      Counts& most = known->second->counts;
      const Counts& counts = (*here)[static_cast<size_t>(known->second - found->data())].emplace_back(Counts{one->clock(), one->gets(), one->adds()});
      most = later(most, counts);
    }
  };
  const auto begun = [this, found, rest](const base::Status&) {
    points_.insert(points_.end(), found->begin(), found->end());
    rest.empty() ? begin_everywhere() : begin_here(rest);
  };
  const auto done = [this, found, here, begun](const base::Status& status) {
    bool agree = true;
    for (size_t i = 0; i < found->size(); ++i)
      agree = agree && std::ranges::all_of((*here)[i], [&](const Counts& counts) { return counts == (*found)[i].counts; });
    agree || !status.ok() ? begun(status) : tell(*found, true, begun);
  };
  const auto question = [tables](wire::FrameBuilder& builder, size_t server) {
    std::vector<uint32_t> numbers;
    for (const TableViewRef& table : tables)
      if (table->numbers[server] != TableView::kNoNumber) numbers.push_back(table->numbers[server]);
    return builder.finish(wire::Body::Begin, wire::CreateBeginDirect(builder.fbb(), &numbers));
  };
  const auto round = std::make_shared<Round>(servers_, servers_.peers, each, done);
  round->overtake();
  round->ask(question, base::kNever);
}

/// From now on the calls on the table have their true numbers.
void Entry::begin_at(TableView& table, const Counts& counts) {
  table.is_newcomer = false;
  if (!counts_calls(table.consistency)) {
    table.clock_base = counts.clock - table.first.clock;
    return;
  }
  table.first = counts;
  table.clock += counts.clock;
  table.round += counts.gets;
  table.index += counts.adds;
  table.adds_at_get += table.adds(counts);
}

bool Entry::opened(const TableViewRef& table, size_t outside) {
  if (!has_rounds(*table)) return false;
  if (const auto begun = begun_.extract(table->numbers.front())) {
    begin_at(*table, begun.mapped());
    return true;
  }
  if (outside == 0 && !is_outside_) return false;
  if (has_begun_ && !counts_calls(table->consistency)) return false;
  table->is_newcomer = true;
  const bool begins_now = std::ranges::any_of(points_, [&](const Point& point) { return point.numbers.front() == table->numbers.front(); });
  if (outside < servers_.peers.size() && !begins_now) step_back(table);  // a table that was created while this worker joined, or later
  if (has_begun_ || std::exchange(is_outside_, true)) return true;
  for (const auto& [name, known] : tables_) {
    if (!has_rounds(*known) || known->is_newcomer || Counts{known->clock, known->round, known->index} != known->first) continue;
    known->is_newcomer = true;
    if (counts_calls(known->consistency)) {  // from 0 on, and from the host's counts when it begins
      known->clock = known->adds_at_get = known->round = known->index = 0;
      known->first = {};
    }
    step_back(known);
  }
  return true;
}

/// The others do not wait for this worker on the table: it begins on all tables together.
void Entry::step_back(const TableViewRef& table) { back_.push_back({table->numbers, {}}); }

void Entry::tell_go_on(base::Peer host) {
  const auto round = std::make_shared<Round>(servers_, servers_.processes, std::vector{host}, Round::Each(), [](const base::Status&) {});
  round->overtake();
  round->ask([](wire::FrameBuilder& builder, size_t) { return builder.finish(wire::Body::GoOn, wire::CreateGoOn(builder.fbb())); }, base::kNever);
}

/// The host continues, and so does this worker, unless it has to ask again.
void Entry::over() {
  points_.clear();
  if (host_ != base::kNobody) tell_go_on(host_);
  if (wanted_->is_newcomer) return is_destroyed(wanted_) || is_withdrawn_ ? want_another() : ask_next();
  host_ = base::kNobody;
  is_waiting_ = is_outside_ = false;
  has_begun_ = true;
  wanted_.reset();
  if (const auto entered = std::exchange(entered_, nullptr)) entered();
  if (!enter_with_kept()) release();  // a table was opened meanwhile
}

}  // namespace mv::table
