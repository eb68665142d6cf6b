#include "engine/collective/group.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/collective/active.hpp"
#include "engine/collective/note.hpp"
#include "engine/collective/shape.hpp"
#include "engine/collective/transfers.hpp"

namespace mv::collective {

namespace {
/// Sorted and without duplicates, because a member may send anything.
Agreement::Newcomers read_newcomers(const wire::GroupNote& note) {
  if (note.peers() == nullptr || note.places() == nullptr) return {};
  std::set<Agreement::Newcomer> newcomers;
  for (uint32_t i = 0; i < std::min(note.peers()->size(), note.places()->size()); ++i) newcomers.insert({note.peers()->Get(i), note.places()->Get(i)});
  return {newcomers.begin(), newcomers.end()};
}

/// Of any size: Execution refuses one that its value does not have.
Tail tail_of(const wire::Collect& collect) {
  Tail tail;
  if (collect.tail() == nullptr) return tail;
  tail.size = collect.tail()->size();
  std::memcpy(tail.data.data(), collect.tail()->data(), tail.bytes().size());
  return tail;
}

/// Whether it is a part of a message for one rank.
bool is_transfer(const wire::Collect& collect) {
  return collect.signature() != nullptr && static_cast<Kind>(collect.signature()->kind()) == Kind::kSend;
}
}  // namespace

Group::Group(const base::Clock& clock, Sender& sender, rpc::Server& server, base::Pool& pool, Members members, Setting setting)
    : clock_(clock),
      sender_(sender),
      server_(server),
      pool_(pool),
      members_(std::move(members)),
      made_(clock.now()),
      setting_(std::move(setting)),
      agreement_(static_cast<uint32_t>(setting_.rank), static_cast<uint32_t>(setting_.size),
                 [this](uint32_t to, const Agreement::Word& word) { tell_agreement(to, word); }),
      transfers_(std::make_unique<Transfers>(*this)),
      met_(members_.peers.size()),
      outstanding_(members_.peers.size()) {
  met_[0] = true;  // since the opening
  if (setting_.rank == 0) met_.assign(met_.size(), true);
}

Group::~Group() { forget(); }

void Group::choose_by(const Basis& basis) {
  planner_.forget();
  setting_.costs = basis.costs;
  setting_.layout.beside = basis.beside;
  if (basis.beside == base::TransportKind::kUcx || basis.beside == base::TransportKind::kMpi) setting_.layout.between = basis.beside;
}

void Group::hand_over_to(std::unique_ptr<Reducer> reducer, uint64_t from_bytes) {
  if (!broken_.ok() || is_closed_) return;
  reducer_ = std::move(reducer);
  setting_.hand_over_from = from_bytes;
}

void Group::forget() {
  forgotten_ = true;
  ends_->broken = true;
  reducer_.reset();
  numbers_.clear();
  transfers_->forget();
}

std::string Group::name(uint32_t rank) const { return fmt::format("rank {} of the group, {}", rank, members_.names[rank]); }

// ---- this rank's operations

base::Status Group::refusal(const Operation& operation) const {
  if (is_closed_) return base::Status(MV_ESTATE, "the group is closed");
  if (!broken_.ok()) return base::error(broken_.code(), "the group is broken ({}): {}", kAfterBreak, broken_.text());
  if (draining_at_ == begun_ + 1 && !operation.draining && !is_between_two(operation.kind)) return base::Status(MV_ESTATE, kOnlyDraining);
  return {};
}

/// The state of an operation, which begins here if it is new.
Group::Numbered& Group::numbered(uint64_t op) {
  if (spare_number_.empty() || numbers_.contains(op)) return numbers_[op];
  spare_number_.key() = op;
  return numbers_.insert(std::move(spare_number_)).position->second;
}

void Group::begin(Operation&& operation, base::OperationRef call, Handed handed) {
  if (const base::Status refused = refusal(operation); !refused.ok()) return call->complete(refused);
  if (is_between_two(operation.kind)) return transfers_->begin(std::move(operation), call);
  const uint64_t op = ++begun_;
  Numbered& numbered = this->numbered(op);
  if (!numbered.failed.ok()) {
    const base::Status why = numbered.failed;
    clear(numbered);
    numbers_.erase(op);
    return call->complete(why);
  }
  numbered.active = std::make_shared<Active>(*this, op, std::move(operation), call, std::move(handed));
  call->begin(numbered.active);
  Active& active = *numbered.active;
  active.begun = clock_.now();
  active.running.look_at = active.begun + kLookAfter;
  for (const auto& [rank, last] : closed_)
    if (last < op) {
      const std::string when = op - last == 1 ? "before this operation" : fmt::format("{} operations before this one", op - last - 1);
      return break_group(base::error(MV_EPEERLOST, "{} has left the group, {}", name(rank), when), true);
    }
  const auto told = std::exchange(numbered.told, {});
  for (const auto& [rank, signature] : told)
    if (!agrees(op, rank, signature)) return;
  const auto drainers = std::exchange(numbered.drainers, {});
  for (const uint32_t rank : drainers) drains(op, rank);
  if (!numbers_.contains(op)) return;
  for (Early& early : std::exchange(numbered.early, {})) {
    received_ += early.chunk.size();
    active.running.execution().received(static_cast<int32_t>(early.from), std::move(early.chunk));
  }
  settle(op);
}

/// Makes all possible progress, and ends the operation when it is done. False if it has ended.
bool Group::settle(uint64_t op) {
  const auto found = numbers_.find(op);
  if (found == numbers_.end() || found->second.active == nullptr) return false;
  Active& active = *found->second.active;
  if (std::exchange(active.busy, true)) return true;
  Running& running = active.running;
  base::Status wrong = running.execution().advance();
  if (trace_ != nullptr && active.reduced == base::Nanos{0} && running.execution().reduced()) active.reduced = clock_.now();
  if (wrong.ok() && running.execution().paused()) {
    if (const base::Status uneven = running.check_counts(); !uneven.ok()) {
      active.busy = false;
      fail(op, base::error(uneven.code(), "operation {} of the group, {}: {}", shown(op), describe(running.signature()), uneven.text()), true);
      return false;
    }
    wrong = running.execution().advance();
  }
  active.busy = false;
  if (!wrong.ok()) {
    break_group(base::error(wrong.code(), "operation {} of the group, {}: {}", shown(op), describe(running.signature()), wrong.text()), true);
    return false;
  }
  running.hand();
  if (!running.execution().done()) return true;
  if (running.is_handed_over() && !is_reduced(op, active)) return true;
  if (is_ahead()) {
    if (!std::exchange(active.held, true)) held_.push_back(op);
    return true;
  }
  running.finish();
  done_.add(op, running.signature());
  finish(op, {});
  return false;
}

/// Hands an operation over that all ranks have begun, in the order of the operations. False until its values are reduced.
bool Group::is_reduced(uint64_t op, Active& active) {
  using Handover = Active::Handover;
  if (active.handover != Handover::kNotYet) return active.handover == Handover::kDone;
  const auto waits = [](const auto& entry) {
    const auto& other = entry.second.active;
    return other != nullptr && other->running.is_handed_over() && other->handover == Handover::kNotYet;
  };
  const auto self = numbers_.find(op);
  if (std::any_of(numbers_.begin(), self, waits)) return false;
  active.handover = Handover::kUnderWay;
  reducer_->reduce(active.running.operation(), [weak = weak_from_this(), op](const base::Status& status) {
    if (const auto group = weak.lock()) group->reduced(op, status);
  });
  if (const auto next = std::find_if(self, numbers_.end(), waits); next != numbers_.end()) settle(next->first);
  return false;
}

void Group::reduced(uint64_t op, const base::Status& status) {
  const auto found = numbers_.find(op);
  if (found == numbers_.end() || found->second.active == nullptr) return;
  Active& active = *found->second.active;
  if (!status.ok())
    return break_group(base::error(status.code(), "operation {} of the group, {}: {}", shown(op), describe(active.running.signature()), status.text()), true);
  active.handover = Active::Handover::kDone;
  settle(op);
}

/// Whether a rank that is not lost is far behind this one.
bool Group::is_ahead() const {
  if (!outstanding_.any()) return false;
  for (uint32_t rank = 0; rank < members_.peers.size(); ++rank)
    if (outstanding_.is_behind(rank) && !lost_.contains(rank)) return true;
  return false;
}

/// A rank that was far behind has caught up: operations that waited for it may end.
void Group::keep_up() {
  for (const uint64_t op : std::exchange(held_, {})) {
    const auto found = numbers_.find(op);
    if (found == numbers_.end() || found->second.active == nullptr) continue;
    found->second.active->held = false;
    settle(op);
  }
}

void Group::finish(uint64_t op, const base::Status& status) {
  const auto found = numbers_.find(op);
  const std::shared_ptr<Active> active = std::move(found->second.active);
  clear(found->second);
  spare_number_ = numbers_.extract(found);
  spare_number_.mapped() = {};
  active->running.execution().stop();
  if (trace_ != nullptr) note(*active);
  active->running.call()->complete(status);
}

/// A group of ranks that share memory notes its operations itself (api/group/shared_queue.cpp).
void Group::note(const Active& active) const {
  const Kind kind = active.running.operation().kind;
  if (watcher_.look && !is_by_messages(kind)) return;
  const auto count = [](base::Nanos span) { return static_cast<uint64_t>(span.count()); };
  const base::Nanos end = clock_.now();
  trace_->note({count(active.begun), count(end) + 1, base::kNobody, 0, 0, base::TraceKind::kGroup, static_cast<uint8_t>(kind)});
  if (kind != Kind::kAllreduce || active.reduced == base::Nanos{0}) return;
  const auto part = [&](base::TracePart what, base::Nanos from, base::Nanos until) {
    trace_->note({count(from), count(until), base::kNobody, count(active.begun), 0, base::TraceKind::kPart, static_cast<uint8_t>(what)});
  };
  part(base::TracePart::kReduce, active.begun, active.reduced);
  part(base::TracePart::kGather, active.reduced, end);
}

/// Finishes the requests of early chunks, which will not be used.
void Group::clear(Numbered& numbered) {
  for (const Early& early : std::exchange(numbered.early, {})) server_.finish(early.chunk.asked);
}

/// Ends an operation with an error, which uses up its number.
void Group::fail(uint64_t op, const base::Status& why, bool tell) {
  if (tell) {
    tell_all(wire::GroupWord::Fails, [&](Note& note) {
      note.op = op;
      note.status = code_for_others(why.code());
      note.text = why.text();
    });
  }
  const auto found = numbers_.find(op);
  if (found != numbers_.end() && found->second.active != nullptr) {
    // The library still uses its memory.
    if (found->second.active->handover != Active::Handover::kNotYet) return break_group(why, true);
    return finish(op, why);
  }
  if (op <= begun_) return;
  Numbered& numbered = numbers_[op];
  numbered.failed = why;
  clear(numbered);
  check_drained(op);
}

void Group::disagree(uint64_t op, uint32_t a, const wire::Signature& first, uint32_t b, const wire::Signature& second) {
  const char* difference = "";
  if (describe(first) == describe(second))
    difference = labels_fit(first.label(), second.label()) ? ", with different arrays or different algorithm costs" : kOtherLabel;
  fail(op, base::error(MV_EDISAGREE, "operation {} of the group: {} calls {}, {} calls {}{}", shown(op), name(a), describe(first), name(b), describe(second),
                       difference), true);
}

/// Compares a rank's signature of an operation with this rank's, or keeps it until this rank begins the operation.
/// False if the operation fails because they differ.
bool Group::agrees(uint64_t op, uint32_t from, const wire::Signature& signature) {
  Numbered& numbered = this->numbered(op);
  if (numbered.active != nullptr) {
    const wire::Signature& mine = numbered.active->running.signature();
    if (same(mine, signature)) return true;
    disagree(op, static_cast<uint32_t>(setting_.rank), mine, from, signature);
    return false;
  }
  if (op == draining_at_ && !can_be_drained(signature)) {
    Operation mine;
    mine.kind = Kind::kDrain;
    disagree(op, static_cast<uint32_t>(setting_.rank), sign(mine, 0), from, signature);
    return false;
  }
  if (std::ranges::find(numbered.told, from, [](const auto& entry) { return entry.first; }) == numbered.told.end()) numbered.told.emplace_back(from, signature);
  return true;
}

void Group::resume(const base::Operation& call, const base::Status& status) {
  for (auto& [op, numbered] : numbers_) {
    if (numbered.active == nullptr || numbered.active->running.call().get() != &call) continue;
    if (!status.ok()) return fail(op, base::error(status.code(), "{} could not reduce: {}", name(static_cast<uint32_t>(setting_.rank)), status.text()), true);
    numbered.active->running.resume();
    settle(op);
    return;
  }
}

// ---- messages from other ranks

void Group::on_chunk(const rpc::Asked& asked, const wire::Collect& collect, std::span<const std::byte> payload, const base::SinkRef& staged) {
  const uint64_t op = collect.op();
  const uint32_t from = collect.from();
  met_[from] = true;
  if (is_transfer(collect)) {
    if (!broken_.ok() || is_closed_) return server_.finish(asked);
    return transfers_->on_chunk(asked, collect, payload, staged);
  }
  const auto found = numbers_.find(op);
  const bool over = (op <= begun_ && found == numbers_.end()) || (found != numbers_.end() && !found->second.failed.ok());
  if (over || !broken_.ok() || is_closed_ || collect.signature() == nullptr) {
    if (!is_closed_ && collect.signature() != nullptr) came_late(op, from, *collect.signature());
    return server_.finish(asked);
  }
  reached_[from] = std::max(reached_[from], op);
  if (!agrees(op, from, *collect.signature())) return server_.finish(asked);
  Chunk chunk{{collect.first(), collect.count()}, payload, staged, nullptr, asked, collect.awaited(), tail_of(collect)};
  Numbered& numbered = numbers_[op];
  if (numbered.active == nullptr) {
    chunk.keep();
    numbered.early.push_back({from, std::move(chunk)});
    return;
  }
  received_ += chunk.size();
  numbered.active->running.execution().received(static_cast<int32_t>(from), std::move(chunk));
  settle(op);
}

/// An operation that is done here has received all of its elements, so a rank that sends more is at another operation.
void Group::came_late(uint64_t op, uint32_t from, const wire::Signature& theirs) {
  const wire::Signature* const mine = done_.find(op);
  if (!broken_.ok() || mine == nullptr) return;
  break_group(base::error(MV_EDISAGREE, "operation {} of the group: {} called {}, {} calls {}", shown(op), name(static_cast<uint32_t>(setting_.rank)),
                        describe(*mine), name(from), describe(theirs)), true);
}

base::SinkRef Group::place(const wire::Collect& collect, size_t bytes) {
  const auto found = is_transfer(collect) ? numbers_.end() : numbers_.find(collect.op());
  base::SinkRef sink;
  if (is_transfer(collect)) sink = transfers_->place(collect, bytes);
  if (found != numbers_.end() && found->second.active != nullptr && collect.signature() != nullptr &&
      same(*collect.signature(), found->second.active->running.signature())) {
    Active& active = *found->second.active;
    active.busy = true;
    sink = active.running.execution().place(static_cast<int32_t>(collect.from()), {collect.first(), collect.count()}, bytes);
    active.busy = false;
  }
  if (sink != nullptr) return sink;
  base::Pool::Block block = pool_.take(bytes);
  return base::Sink::into(block.bytes, block.memory);
}

void Group::on_note(const wire::GroupNote& note) {
  const uint32_t from = note.from();
  const uint64_t op = note.op();
  met_[from] = true;
  const auto ranks = [](const flatbuffers::Vector<uint32_t>* list) { return list != nullptr ? Agreement::Ranks(list->begin(), list->end()) : Agreement::Ranks(); };
  const auto status = [&] {
    const auto code = note.status() < 0 ? static_cast<mv_status>(note.status()) : MV_EPROTOCOL;
    return base::Status(code, note.text() != nullptr ? note.text()->str() : "");
  };
  switch (note.word()) {
    case wire::GroupWord::Closed:
      return on_closed(from, op, note.decided() != nullptr ? std::optional(Agreement::Decision{ranks(note.decided()), read_newcomers(note)}) : std::nullopt,
                       note.status() != MV_OK ? status() : base::Status());
    case wire::GroupWord::Waits:
      reached_[from] = std::max(reached_[from], op);
      if (broken_.ok() && note.signature() != nullptr && (op > begun_ || numbers_.contains(op))) agrees(op, from, *note.signature());
      return;
    case wire::GroupWord::Asks:
      return tell(from, wire::GroupWord::Begun, [&](Note& answer) { answer.op = begun_; });
    case wire::GroupWord::Begun:
      reached_[from] = std::max(reached_[from], op);
      return answered(from);
    case wire::GroupWord::Drains:
      if (broken_.ok()) drains(op, from);
      return;
    case wire::GroupWord::Comes: {
      if (!broken_.ok() || op != begun_ + 1 || note.signature() == nullptr || note.dtypes() == nullptr || note.counts() == nullptr) return;
      reached_[from] = std::max(reached_[from], op);
      if (!agrees(op, from, *note.signature())) return;
      Shape shape;
      shape.reduction = static_cast<math::Reduction>(note.signature()->reduction());
      shape.custom = static_cast<Kind>(note.signature()->kind()) == Kind::kCustom;
      for (uint32_t i = 0; i < std::min(note.dtypes()->size(), note.counts()->size()); ++i) {
        const uint8_t told = note.dtypes()->Get(i);
        shape.arrays.push_back({nullptr, note.counts()->Get(i), static_cast<mv_dtype>(told & kDtypeMask), static_cast<uint8_t>(told >> kNoteShift)});
      }
      if (const base::Status wrong = check_shape(shape); !wrong.ok()) return break_group(base::error(wrong.code(), "{}: {}", name(from), wrong.text()), true);
      numbers_[op].shape = std::move(shape);
      return check_drained(op);
    }
    case wire::GroupWord::Fails:
      if (done_.find(op) != nullptr) return break_group(status(), true);  // some ranks have its result, others do not
      if (broken_.ok()) fail(op, status(), false);
      return;
    case wire::GroupWord::Breaks:
      for (const uint32_t rank : ranks(note.ranks())) agreement_.gone(rank);
      return break_group(status(), false);
    case wire::GroupWord::Shrinks:
    case wire::GroupWord::Decides: {
      break_group(status(), true);
      Agreement::Word word{note.word() == wire::GroupWord::Decides, note.asks(), ranks(note.ranks()), {note.grows(), note.size(), {}}, {ranks(note.decided()), {}}};
      (word.decided.ranks.empty() ? word.wish.newcomers : word.decided.joined) = read_newcomers(note);
      return agreement_.heard(from, word);
    }
    default:
      return;
  }
}

/// A rank makes no operation after `last`. It may know the survivors; `gave_up` says why it did not open the group.
void Group::on_closed(uint32_t from, uint64_t last, const std::optional<Agreement::Decision>& decided, const base::Status& gave_up) {
  closed_[from] = last;
  ends_->left = from + 1;
  if (watcher_.left) watcher_.left(from);
  if (!broken_.ok() && decided) agreement_.heard(from, {true, false, {}, {}, *decided});
  agreement_.gone(from);
  if (!gave_up.ok()) {
    const mv_status code = gave_up.code() == MV_EPEERLOST ? MV_EPEERLOST : MV_ECANCELED;
    return break_group(base::error(code, "{} gave up opening the group: {}", name(from), gave_up.text()), true);
  }
  if (waits_beyond(last) || transfers_->await(from)) break_group(base::error(MV_EPEERLOST, "{} has left the group", name(from)), true);
}

/// Whether this rank is in an operation after `op`.
bool Group::waits_beyond(uint64_t op) const {
  if (drain_ && op < begun_ + 1) return true;
  return std::any_of(numbers_.upper_bound(op), numbers_.end(), [](const auto& entry) { return entry.second.active != nullptr; });
}

// ---- losses and closing

void Group::lost(uint32_t rank, const base::Status& why, bool all_hear) {
  if (!lost_.insert(rank).second) return;
  if (!closed_.contains(rank)) break_group(base::error(MV_EPEERLOST, "rank {} of the group is lost: {}", rank, why.text()), !all_hear);
  agreement_.gone(rank);
}

/// A rank that has exchanged messages with this one has announced its last operation before its end. Any other rank has ended after all its
/// messages were received, so only operations that wait for that rank itself fail.
void Group::finished(uint32_t rank, const base::Status& why) {
  if (!lost_.insert(rank).second) return;
  ends_->left = rank + 1;
  const bool is_silent = closed_.try_emplace(rank, kUnknown).second;
  if (is_silent && watcher_.left) watcher_.left(rank);
  if (awaits(rank) || (is_silent && drain_)) break_group(base::error(MV_EPEERLOST, "rank {} of the group: {}", rank, why.text()), true);
  agreement_.gone(rank);
}

bool Group::awaits(uint32_t rank) const {
  const auto waits = [rank](const auto& entry) {
    const auto& active = entry.second.active;
    return active != nullptr && active->running.execution().awaited() == static_cast<int32_t>(rank);
  };
  return transfers_->await(rank) || std::ranges::any_of(numbers_, waits);
}

void Group::break_group(const base::Status& why, bool tell) {
  if (!broken_.ok() || is_closed_) return;
  broken_ = why;
  ends_->broken = true;
  reducer_.reset();  // it does not use the memory of operations any more
  if (watcher_.broken) watcher_.broken(why);
  if (tell) {
    tell_all(wire::GroupWord::Breaks, [&](Note& note) {
      note.status = code_for_others(why.code());
      note.text = why.text();
      note.ranks.assign(lost_.begin(), lost_.end());
    });
  }
  const base::Status told = base::error(why.code(), "{}; the group is broken: {}", why.text(), kAfterBreak);
  auto numbers = std::exchange(numbers_, {});
  for (auto& [op, numbered] : numbers) {
    clear(numbered);
    if (numbered.active != nullptr) numbered.active->running.execution().stop();
  }
  for (auto& [op, numbered] : numbers)
    if (numbered.active != nullptr) numbered.active->running.call()->complete(told);
  transfers_->end(told);
  drop_drain(told);
}

void Group::watch(Watcher watcher) {
  watcher_ = std::move(watcher);
  for (const auto& [rank, last] : closed_) watcher_.left(rank);
  if (!broken_.ok()) watcher_.broken(broken_);
}

Note Group::closing(const base::Status& gave_up) const {
  Note note;
  note.group = members_.id;
  note.word = wire::GroupWord::Closed;
  note.from = static_cast<uint32_t>(setting_.rank);
  note.op = begun_;
  note.status = gave_up.code();
  note.text = gave_up.text();
  note.generation = members_.generation;
  if (const auto& decided = agreement_.decided()) {
    note.decided = decided->ranks;
    write_newcomers(note, decided->joined);
  }
  return note;
}

void Group::close(Tell to, const base::Status& gave_up) {
  if (is_closed_) return;
  const Note note = closing(gave_up);
  for (uint32_t rank = 0; rank < members_.peers.size(); ++rank)
    if (is_other(rank) && (to == Tell::kAll || (to == Tell::kMet && met_[rank]))) sender_.send(members_.peers[rank], frame_of(sender_.builder(), note));
  break_group(base::Status(MV_ESTATE, "this rank has closed the group"), false);
  is_closed_ = true;
  agreement_.give_up(base::Status(MV_ESTATE, "this rank has closed the group"));
}

void Group::abort(const std::string& reason) {
  break_group(base::error(MV_EPEERLOST, "{} has left the group: {}", name(static_cast<uint32_t>(setting_.rank)), reason), true);
  close(Tell::kMet);
}

}  // namespace mv::collective
