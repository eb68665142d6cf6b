#include "script.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "engine/table/client/plan.hpp"
#include "shard/combine.hpp"

namespace mv::sim {

using namespace std::chrono_literals;

namespace {

constexpr std::byte kBuried{0xee};
constexpr size_t kKeepBytes = 64 << 10;
constexpr int kHastyAttempts = 3;

bool is_change(Call call) {
  return call == Call::kAdd || call == Call::kAddRows || call == Call::kSet || call == Call::kErase;
}
bool is_peek(Call call) { return call == Call::kPeek || call == Call::kPeekRows; }

const char* name_of(Call call) {
  static constexpr const char* kNames[] = {"add",          "add of rows", "get",         "get of rows", "peek",
                                           "peek of rows", "barrier",     "catching up", "open",        "set",
                                           "erase",        "scan",        "clock",       "new updater"};
  return kNames[static_cast<size_t>(call)];
}

bool says(const base::Status& status, const char* what) { return status.text().find(what) != std::string::npos; }

}  // namespace

void Quarantine::add(std::vector<std::byte> memory) {
  std::fill(memory.begin(), memory.end(), kBuried);
  if (memory.size() <= kKeepBytes) kept_.push_back(std::move(memory));
}

bool Quarantine::is_intact() const {
  return std::all_of(kept_.begin(), kept_.end(), [](const auto& memory) {
    return std::all_of(memory.begin(), memory.end(), [](std::byte b) { return b == kBuried; });
  });
}

/// A call on a table.
struct Script::Operation final : base::Operation {
  Operation(Script& script, Step step) : script(script), step(step) {}
  void ended(const base::Status& status) override { script.completed(self.lock(), status); }

  Script& script;
  const Step step;
  std::weak_ptr<Operation> self;
  std::vector<std::byte> memory;  ///< the sent data, or the place of the answer
  AddRef add;
  Reading reading;
  uint64_t round = 0, index = 0;  ///< sync mode's counts when it began
  uint64_t clock = 0;             ///< this worker's clock then
  bool blocking = true, hasty = false, over = false;
};

class Script::Visit final : public base::Operation {
 public:
  Visit(Script& script, size_t visit, bool hasty) : script_(script), visit_(visit), hasty_(hasty) {}
  void ended(const base::Status& status) override {
    if (std::exchange(over, true)) return script_.violated("a barrier completed twice");
    script_.barrier_over(visit_, hasty_, status);
  }
  bool over = false;

 private:
  Script& script_;
  const size_t visit_;
  const bool hasty_;
};

// ---- control flow

void Script::after(Nanos span, void (Script::*next)()) {
  world_.later(member_.self(), span, [weak = weak_from_this(), next] {
    if (const auto self = weak.lock()) ((*self).*next)();
  });
}

/// Pauses, then makes the next step.
void Script::go() {
  const int64_t longest = world_.scenario().think.count() * slowness_;
  if (!std::exchange(going_, true)) after(Nanos(random_.between(0, longest)), &Script::advance);
}

void Script::start() {
  started_ = true;
  started_at_ = world_.timeline().now();
  create_next();
}

/// Creates some of the next tables in one creation; other workers may split them differently.
void Script::create_next() {
  const size_t first = tables_.size(), all = world_.scenario().tables.size();
  if (first == all) return enters() ? enter() : go();
  const size_t some = random_.chance(0.5) ? all - first : 1 + random_.below(all - first);
  const bool fills = member_.cluster().view().worker_id(member_.self()) == 0;
  std::vector<table::NewTable> tables;
  auto lent = std::make_shared<std::vector<std::vector<std::byte>>>();
  for (size_t table = first; table < first + some; ++table) {
    const std::vector<std::byte>& values = lent->emplace_back(world_.ledger(table).initial_values());
    tables.push_back({std::make_shared<const shard::Spec>(world_.ledger(table).plan().spec),
                      fills && !values.empty() ? base::Payload::lent(values) : nullptr});
    say(fmt::format("creates \"{}\"", tables.back().spec->name));
  }
  const bool hasty = ++attempts_ <= kHastyAttempts && random_.chance(world_.scenario().hasty);
  const Nanos deadline = hasty ? world_.timeline().now() + Nanos(random_.between(100'000, 100'000'000)) : base::kNever;
  member_.tables().catalogue().create(std::move(tables), deadline, [this, lent, hasty](base::Result<std::vector<table::TableViewRef>> created) {
    for (std::vector<std::byte>& values : *lent) world_.quarantine().add(std::move(values));
    say("creation: " + (created.ok() ? "done" : created.status().text()));
    if (!created.ok() && hasty && created.status().code() == MV_ETIMEOUT)
      return after(Nanos(random_.between(0, 50'000'000)), &Script::create_next);
    if (!created.ok()) return give_up(created.status());
    attempts_ = 0;
    for (const table::TableViewRef& table : created.value()) {
      world_.ledger(tables_.size()).created(table->numbers);
      if (!enters()) world_.ledger(tables_.size()).ticked(life_, table->now());
      tables_.push_back(table);
    }
    after(Nanos(0), &Script::create_next);
  });
  world_.touched(member_.self());
}

/// A late worker begins with another worker's next call, of some kind on some table. Then it makes the calls that the others still have to make.
void Script::enter() {
  std::vector<table::TableViewRef> there;
  const auto is_counted = [](const table::TableViewRef& table) { return table->is_newcomer && table->consistency == shard::Consistency::kSync; };
  std::ranges::copy_if(tables_, std::back_inserter(there), is_counted);
  const auto entered = [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    self->say("has begun");
    for (size_t table = 0; table < self->tables_.size(); ++table) {
      self->world_.ledger(table).joins(self->life_, self->tables_[table]->index);
      self->world_.ledger(table).ticked(self->life_, self->tables_[table]->now());
    }
    self->skip_what_is_over();
    self->go();
  };
  if (there.empty()) return entered();
  const table::TableViewRef table = there[random_.below(there.size())];
  const wire::Counted call = random_.chance(0.5) ? wire::Counted::Get : wire::Counted::Add;
  say(fmt::format("wants to begin with {} \"{}\"", wire::EnumNameCounted(call), table->spec.name));
  member_.tables().entry().enter(table, call, entered);
  world_.touched(member_.self());
}

/// Makes no call that is over for the others.
void Script::skip_what_is_over() {
  uint64_t barriers = member_.cluster().barriers_passed();
  std::vector<uint64_t> gets, adds, clocks;
  for (const table::TableViewRef& table : tables_) {
    gets.push_back(table->round);
    adds.push_back(table->index);
    clocks.push_back(table->now());
  }
  const auto is_over = [](uint64_t& open) { return open > 0 && open-- > 0; };
  std::erase_if(steps_, [&](const Step& step) {
    switch (step.call) {
      case Call::kBarrier:
        return is_over(barriers);
      case Call::kGet:
      case Call::kGetRows:
        return is_over(gets[step.table]);
      case Call::kAdd:
      case Call::kAddRows:
        return is_over(adds[step.table]);
      case Call::kClock:
        return is_over(clocks[step.table]);
      case Call::kSet:
      case Call::kErase:
      case Call::kSetUpdater:
        return true;  // others may be at another point
      default:
        return false;
    }
  });
}

void Script::advance() {
  going_ = false;
  if (leaving_ || waiting_) return;
  if (!failure_.ok()) return under_way_.empty() ? leave() : void();
  if (under_way_.size() >= world_.scenario().in_flight) return;
  if (at_ == steps_.size()) return under_way_.empty() ? look_once_more() : void();
  const Step step = steps_[at_];
  if (step.call == Call::kCatchUp && !under_way_.empty()) return;
  ++at_;
  attempts_ = 0;
  perform(step);
  if (!waiting_) go();
}

void Script::perform(const Step& step) {
  if (step.call == Call::kCatchUp) return;
  if (step.call == Call::kBarrier) return enter_barrier();
  if (step.call == Call::kOpen) return open(step.table);
  if (step.call == Call::kScan) return scan(step.table);
  if (step.call == Call::kClock) return tick_clock(step.table);
  if (step.call == Call::kSetUpdater) return set_updater(step.table);
  note_acknowledged();
  const auto op = std::make_shared<Operation>(*this, step);
  op->self = op;
  op->round = tables_[step.table]->round;
  op->index = tables_[step.table]->index;
  op->clock = tables_[step.table]->now();
  choose_patience(op);
  is_change(step.call) ? change(op) : read(op);
  world_.touched(member_.self());
}

/// In sync mode, calls that may be given up are made one at a time, so that their counts can be taken back.
void Script::choose_patience(const OperationRef& op) {
  const Scenario& plan = world_.scenario();
  op->blocking = !random_.chance(plan.asynchronous);
  const bool own_part_is_done = is_change(op->step.call) && own_shard(op->step.table) != nullptr;
  const bool sync = tables_[op->step.table]->consistency == shard::Consistency::kSync;
  op->hasty =
      (op->blocking || !sync) && !own_part_is_done && ++attempts_ <= kHastyAttempts && random_.chance(plan.hasty);
  if (op->hasty && random_.chance(0.5))
    op->set_deadline(world_.timeline().now() + Nanos(random_.between(10'000, 30'000'000)));
}

void Script::withdraw_later(const OperationRef& op) {
  if (!op->hasty || op->deadline() != base::kNever || op->over) return;
  world_.later(member_.self(), Nanos(random_.between(0, 20'000'000)), [weak = weak_from_this(), op] {
    const auto self = weak.lock();
    if (self == nullptr || op->over) return;
    self->say(fmt::format("withdraws its {}", name_of(op->step.call)));
    op->withdraw(MV_ECANCELED);
    if (!op->over) self->violated(fmt::format("a withdrawn {} has not completed", name_of(op->step.call)));
    self->world_.touched(self->member_.self());
  });
}

void Script::change(const OperationRef& op) {
  Ledger& ledger = world_.ledger(op->step.table);
  const Call call = op->step.call;
  const auto write = call == Call::kSet     ? shard::Write::Set
                     : call == Call::kErase ? shard::Write::Erase
                                            : shard::Write::Add;
  op->add = ledger.add(life_, random_, write, call == Call::kAdd, op->clock);
  op->memory = ledger.values(*op->add);
  const bool forgotten = !op->hasty && random_.chance(world_.scenario().forgotten);
  say(fmt::format("{} number {} to \"{}\"{}{}", name_of(call), op->add->index, ledger.plan().spec.name,
                  forgotten      ? ", and forgets it"
                  : op->blocking ? ""
                                 : ", not waiting",
                  op->hasty ? ", may give up" : ""));
  table::Request request;
  request.table = tables_[op->step.table];
  request.kind = table::OpKind::kChange;
  request.write = write;
  request.all = op->add->all;
  request.rows = op->add->rows;
  shard::Combined sums;  // as the node does for its callers
  if (write == shard::Write::Add && !request.all &&
      shard::combine(request.table->spec, request.rows, op->memory.data(), &sums)) {
    request.rows = std::move(sums.rows);
    op->memory = std::move(sums.values);
  }
  request.source = op->blocking && !forgotten ? base::Payload::lent(op->memory) : base::Payload::copy(op->memory);
  shard::Shard* own = own_shard(op->step.table);
  if (own != nullptr) {
    request.skip = own_server();
    change_own(*op, request, *own);
  }
  request.priority = static_cast<int64_t>((op->add->index * 5 + op->step.table) % 4);
  if (write == shard::Write::Add && op->add->index % 3 == 1 && may_be_encoded(request)) encode(*op, request);
  if (forgotten && own == nullptr && request.codec == nullptr && world_.scenario().small && begin_small(request)) return;
  request.table->open_changes.fetch_add(1, std::memory_order_relaxed);
  if (forgotten) return member_.tables().begin(std::move(request));
  begin(op, std::move(request));
}

/// A lossless codec, so that the ledger can ignore it.
const codec::CodecRef& Script::whole_codec() {
  static const codec::CodecRef codec = codec::make(codec::parse("topk ratio=1").value());
  return codec;
}
bool Script::may_be_encoded(const table::Request& request) {
  const shard::Spec& spec = request.table->spec;
  return request.all && spec.dtype == MV_F32 && !spec.is_keyed();
}
void Script::encode(const Operation& op, table::Request& request) const {
  auto pieces = table::plan_all(request.table->spec, request.table->servers.size(), request.skip);
  std::vector<std::byte> encoded(table::place_encoded(pieces, *whole_codec()));
  for (const table::ChunkRange& piece : pieces) {
    std::vector<float> nothing(piece.count), values(piece.count);
    std::memcpy(values.data(), op.memory.data() + piece.offset * sizeof(float), piece.count * sizeof(float));
    whole_codec()->encode(values.data(), nothing.data(), piece.count, encoded.data() + piece.encoded_at);
  }
  request.codec = whole_codec();
  request.source = base::Payload::copy(encoded);
}

/// Like the node for forgotten changes of one message.
bool Script::begin_small(const table::Request& request) {
  const table::TableView& view = *request.table;
  const size_t servers = view.servers.size();
  if (view.consistency == shard::Consistency::kSync || request.source->size() > 2048 ||
      (request.all ? servers > 1 : request.rows.empty()))
    return false;
  const size_t server = request.all ? 0 : shard::server_of(view.spec, servers, request.rows.front());
  std::vector<int64_t> ids = request.rows;
  for (int64_t& id : ids) {
    if (shard::server_of(view.spec, servers, id) != server) return false;
    id -= shard::first_row(view.spec, servers, server);
  }
  const auto id_bytes = std::as_bytes(std::span(ids)), values = std::as_bytes(std::span(request.source->bytes()));
  std::vector<std::byte> payload(id_bytes.begin(), id_bytes.end());
  payload.insert(payload.end(), values.begin(), values.end());
  const table::SmallForm form{server, request.write, request.all ? view.spec.elements() : 0, ids.size(), payload.size()};
  request.table->open_changes.fetch_add(1, std::memory_order_relaxed);
  member_.tables().begin_small(request.table, form, base::Payload::copy(payload), 0);
  return true;
}

void Script::begin(const OperationRef& op, table::Request request) {
  request.operation = op;
  waiting_ = op->blocking;
  under_way_.push_back(op);
  member_.tables().begin(std::move(request));
  withdraw_later(op);
}

size_t Script::own_server() const { return static_cast<size_t>(member_.cluster().view().server_id(member_.self())); }
shard::Worker Script::worker() const { return member_.cluster().view().worker_id(member_.self()); }

/// If the node would let the caller's thread work on the shard itself.
shard::Shard* Script::own_shard(size_t table) const {
  const bool serves = member_.cluster().view().server_id(member_.self()) >= 0;
  if (!world_.scenario().direct || !serves || tables_[table]->consistency == shard::Consistency::kSync) return nullptr;
  return member_.shards().shard(tables_[table]->numbers[own_server()]).get();
}

/// The node's check before it reads there.
bool Script::own_is_open(const Operation& op, const shard::Shard& shard) const {
  if (tables_[op.step.table]->consistency != shard::Consistency::kStale || !op.reading.gated) return true;
  return shard.least_clock.load() >= op.reading.needs;
}

void Script::change_own(const Operation& op, const table::Request& request, shard::Shard& shard) const {
  const shard::Spec& spec = tables_[op.step.table]->spec;
  const size_t servers = request.table->servers.size();
  if (request.all)
    return shard.change(request.write, worker(), 0, shard.elements(),
                        op.memory.data() + shard.rows().first * spec.row_bytes());
  for (size_t i = 0; i < request.rows.size(); ++i) {
    if (shard::server_of(spec, servers, request.rows[i]) != own_server()) continue;
    const int64_t row = request.rows[i] - shard::first_row(spec, servers, own_server());
    const bool erases = request.write == shard::Write::Erase;
    shard.change_rows(request.write, worker(), {&row, 1}, erases ? nullptr : op.memory.data() + i * spec.row_bytes());
  }
}

void Script::read_own(Operation& op, shard::Shard& shard) const {
  const shard::Spec& spec = tables_[op.step.table]->spec;
  const size_t servers = tables_[op.step.table]->servers.size();
  if (op.reading.rows.empty())
    return shard.read(worker(), 0, shard.elements(), op.memory.data() + shard.rows().first * spec.row_bytes());
  for (size_t i = 0; i < op.reading.rows.size(); ++i) {
    if (shard::server_of(spec, servers, op.reading.rows[i]) != own_server()) continue;
    const int64_t row = op.reading.rows[i] - shard::first_row(spec, servers, own_server());
    shard.read_rows(worker(), {&row, 1}, op.memory.data() + i * spec.row_bytes());
  }
}

void Script::read(const OperationRef& op) {
  Ledger& ledger = world_.ledger(op->step.table);
  const bool gated = !is_peek(op->step.call);
  op->reading = ledger.begin(
      fmt::format("{}'s {} number {} of \"{}\"", name_, name_of(op->step.call), op->round, ledger.plan().spec.name),
      life_, gated, tables_[op->step.table]->consistency, op->round, op->clock);
  op->reading.all = op->step.call == Call::kGet || op->step.call == Call::kPeek;
  if (!op->reading.all) op->reading.rows = ledger.choose_rows(random_, random_.chance(0.2));
  if (op->reading.all) op->reading.rows = ledger.plan().keys;
  op->memory.resize(ledger.bytes(op->reading));
  say(fmt::format("{} of \"{}\"{}{}", name_of(op->step.call), ledger.plan().spec.name,
                  op->blocking ? "" : ", not waiting", op->hasty ? ", may give up" : ""));
  table::Request request;
  request.table = tables_[op->step.table];
  request.kind = table::OpKind::kGet;
  request.gated = gated;
  request.clock = request.table->clock;
  request.all = op->reading.rows.empty();
  request.rows = op->reading.rows;
  request.destination = op->memory;
  request.priority = static_cast<int64_t>((op->round * 3 + op->step.table) % 4);
  if (op->round % 3 == 1 && may_be_encoded(request)) request.codec = whole_codec();
  shard::Shard* own = own_shard(op->step.table);
  if (own != nullptr && request.codec == nullptr && own_is_open(*op, *own)) {
    request.skip = own_server();
    read_own(*op, *own);
  }
  begin(op, std::move(request));
}

// ---- completions

void Script::completed(const OperationRef& op, const base::Status& status) {
  if (op == nullptr || std::exchange(op->over, true))
    return violated(fmt::format("a call completed twice: {}", status.text()));
  std::erase(under_way_, op);
  if (op->blocking) waiting_ = false;
  say(fmt::format("{}: {}", name_of(op->step.call), status.ok() ? "done" : status.text()));
  judge(op, status);
  world_.quarantine().add(std::move(op->memory));
  go();
}

void Script::judge(const OperationRef& op, const base::Status& status) {
  Ledger& ledger = world_.ledger(op->step.table);
  if (world_.changes_may_fail()) op->reading.exact = false;  // a worker may have left without its adds
  if (world_.servers_may_fail()) op->reading.bounded = false;
  if (status.ok()) return op->add != nullptr ? ledger.acknowledged(*op->add) : ledger.check(op->reading, op->memory);
  if (status.code() == MV_EPEERLOST && tolerates_lost_worker(op, status)) return;
  if (status.code() == MV_EPEERLOST) return give_up(status);
  if (is_out_of_step(status)) return give_up(status);
  if (op->hasty && status.code() == (op->deadline() != base::kNever ? MV_ETIMEOUT : MV_ECANCELED))
    return judge_given_up(op, status);
  violated(fmt::format("{} ended with status {}: {}", name_of(op->step.call), static_cast<int>(status.code()),
                       status.text()));
}

/// The status gives the fate of a change. In sync mode a change that was not executed does not count, and is called again.
void Script::judge_given_up(const OperationRef& op, const base::Status& status) {
  const bool undone = says(status, "not applied"), unknown = says(status, "outcome unknown");
  if (op->add != nullptr && undone == unknown)
    return violated("the error of a given-up change does not state its outcome: " + status.text());
  if (op->add != nullptr && undone) world_.ledger(op->step.table).not_applied(op->add);
  const table::TableView& table = *tables_[op->step.table];
  if (table.consistency == shard::Consistency::kStale && op->reading.gated && op->add == nullptr) judge_late_get(*op, status);
  if (table.consistency != shard::Consistency::kSync || is_peek(op->step.call) || unknown) return;
  if (table.round != op->round || table.index != op->index)
    return violated(fmt::format("a given-up {} changed the counts from ({}, {}) to ({}, {})", name_of(op->step.call),
                                op->round, op->index, table.round, table.index));
  repeat_later(op->step);
}

/// When a server explains why a get had to wait, it names the workers that are behind, and no others.
void Script::judge_late_get(const Operation& op, const base::Status& status) {
  const std::string text = status.text();
  for (size_t at = text.find("(rank "); at != std::string::npos; at = text.find("(rank ", at + 1)) {
    const size_t word = text.find("is at clock ", at);
    if (word == std::string::npos) return;
    long long rank = 0;
    unsigned long long clock = 0, needed = 0;
    const bool told = std::sscanf(text.c_str() + at, "(rank %lld", &rank) == 1 &&
                      std::sscanf(text.c_str() + word, "is at clock %llu, %llu", &clock, &needed) == 2;
    const size_t life = world_.life_at(rank);
    const bool behind = told && clock < needed && needed == op.reading.needs && life < op.reading.told.size();
    // The successor of a lost worker may be meant, which is further behind.
    if (!behind || (op.reading.told[life] > clock && !world_.is_gone(life)))
      return violated(fmt::format("a get that needs clock {} must not fail with: {}", op.reading.needs, text));
  }
}

void Script::repeat_later(const Step& step) {
  waiting_ = true;
  world_.later(member_.self(), Nanos(random_.between(0, 1'000'000)), [weak = weak_from_this(), step] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    self->waiting_ = false;
    if (!self->failure_.ok()) return self->advance();
    self->perform(step);
    if (!self->waiting_) self->go();
  });
}

/// A stale-synchronous get that waited for a lost worker fails once; the next one ignores that worker.
bool Script::tolerates_lost_worker(const OperationRef& op, const base::Status& status) {
  const bool gated_get = op->add == nullptr && op->reading.gated;
  if (tables_[op->step.table]->consistency != shard::Consistency::kStale || !gated_get) return false;
  if (world_.servers_may_fail() || world_.is_gone(life_) || !failure_.ok()) return false;
  if (!world_.ledger(op->step.table).may_have_waited_for_lost_worker(op->reading))
    violated(
        fmt::format("a get that needs clock {} did not wait for a lost worker: {}", op->reading.needs, status.text()));
  if (!world_.names_a_lost_process(status.text())) violated("a get does not name the lost worker: " + status.text());
  if (++outlived_ > world_.scenario().in_flight * (world_.scenario().faults.size() + 1))
    violated("one loss fails gets repeatedly: " + status.text());
  if (op->blocking) repeat_later(op->step);
  return true;
}

void Script::give_up(const base::Status& why) {
  // A creation that was given up, and failed before it was tried again.
  const bool broke_meanwhile = why.code() == MV_ENOTFOUND && !has_tables() && world_.scenario().loses_members();
  const bool too_late = why.code() == MV_EPEERLOST && !has_tables() && world_.came_too_late(life_);
  if (why.code() != MV_EOUTOFSTEP && !broke_meanwhile && !too_late && !world_.names_a_lost_process(why.text()))
    violated("no member was lost, but: " + why.text());
  if (!failure_.ok()) return;
  failure_ = why;
  say("gives up: " + why.text());
  go();
}

// ---- barriers, opening, leaving

std::vector<size_t> Script::begun() const {
  std::vector<size_t> begun;
  for (size_t table = 0; table < tables_.size(); ++table) begun.push_back(world_.ledger(table).begun(life_));
  return begun;
}

void Script::enter_barrier() {
  const Scenario& plan = world_.scenario();
  const bool hasty = plan.hasty_barriers && random_.chance(plan.hasty), withdrawn = hasty && random_.chance(0.5);
  say("enters a barrier");
  visits_.push_back({begun(), world_.timeline().now()});
  const auto visit = std::make_shared<Visit>(*this, visits_.size() - 1, hasty);
  const Nanos patience = Nanos(random_.between(10'000, 50'000'000));
  waiting_ = true;
  if (hasty && !withdrawn) visit->set_deadline(world_.timeline().now() + patience);
  member_.barrier(visit);
  world_.touched(member_.self());
  if (!withdrawn) return;
  world_.later(member_.self(), patience, [weak = weak_from_this(), visit] {
    const auto self = weak.lock();
    if (self == nullptr || visit->over) return;
    visit->withdraw(MV_ECANCELED);
    if (!visit->over) self->violated("a withdrawn barrier has not completed");
    self->world_.touched(self->member_.self());
  });
}

void Script::barrier_over(size_t visit, bool hasty, const base::Status& status) {
  say("barrier: " + (status.ok() ? "passed" : status.text()));
  waiting_ = false;
  const bool given_up = hasty && (status.code() == MV_ETIMEOUT || status.code() == MV_ECANCELED);
  if (!given_up) visits_[visit].over = world_.timeline().now();
  if (status.ok()) {
    for (size_t table = 0; table < tables_.size() && !world_.changes_may_fail(); ++table)
      world_.ledger(table).settled(life_, visits_[visit].begun[table]);
    world_.barrier_passed(member_.self(), visits_[visit].entered);
  } else if (status.code() == MV_EPEERLOST ? !world_.names_a_lost_process(status.text())
                                           : !given_up && !is_out_of_step(status)) {
    violated(fmt::format("a barrier ended with status {}: {}", static_cast<int>(status.code()), status.text()));
  }
  go();
}

void Script::open(size_t table) {
  waiting_ = true;
  member_.tables().catalogue().open(tables_[table]->spec.name, base::kNever, [this, table](base::Result<table::TableViewRef> opened) {
    waiting_ = false;
    if (!opened.ok()) {
      if (opened.status().code() != MV_EPEERLOST) violated("open: " + opened.status().text());
      give_up(opened.status());
    } else if (opened.value() != tables_[table]) {
      violated("open returned another view of a table that this worker has created");
    }
    go();
  });
  world_.touched(member_.self());
}

/// At the end, reads each table: own adds are in it.
void Script::look_once_more() {
  if (looked_ == tables_.size()) return leave();
  attempts_ = kHastyAttempts;
  const auto op = std::make_shared<Operation>(
      *this, Step{tables_[looked_]->consistency == shard::Consistency::kSync ? Call::kPeek : Call::kGet, looked_});
  ++looked_;
  op->self = op;
  op->round = tables_[op->step.table]->round;
  op->clock = tables_[op->step.table]->now();
  read(op);
  world_.touched(member_.self());
}

void Script::leave() {
  leaving_ = true;
  for (size_t table = 0; table < tables_.size(); ++table) world_.ledger(table).finished(life_);
  say("leaves");
  member_.leave([this](const base::Status& status) {
    say("has left: " + (status.ok() ? "fine" : status.text()));
    if (!status.ok() && !is_out_of_step(status) && !world_.names_a_lost_process(status.text()))
      violated("leaving: " + status.text());
    for (const auto& table : tables_)
      if (table->open_changes != 0)
        violated(fmt::format("all calls have completed, but {} changes of \"{}\" are open", table->open_changes.load(),
                             table->spec.name));
    const bool clean = status.ok() && failure_.ok() && !world_.changes_may_fail();
    world_.left(member_.self(), clean);
  });
  world_.touched(member_.self());
}

// ---- messages

bool Script::is_out_of_step(const base::Status& status) const {
  return status.code() == MV_EOUTOFSTEP && world_.scenario().out_of_step;
}

void Script::violated(const std::string& what) { world_.timeline().violated(fmt::format("{}: {}", name_, what)); }

void Script::say(const std::string& what) const {
  if (!world_.verbose()) return;
  std::printf("%11.4f  %s: %s\n", static_cast<double>(world_.timeline().now().count()) / 1e6, name_.c_str(),
              what.c_str());
}

std::string Script::state() const {
  if (!started_) return "is not ready";
  std::string text = fmt::format("is at step {} of {}", at_, steps_.size());
  if (!failure_.ok()) text += ", has given up";
  if (leaving_) text += ", leaves";
  for (const auto& op : under_way_)
    text += fmt::format(", waits for its {} of \"{}\"", name_of(op->step.call), tables_[op->step.table]->spec.name);
  if (!visits_.empty() && visits_.back().over == base::kNever) text += ", waits in a barrier";
  return text;
}

}  // namespace mv::sim
