// What callers' threads ask of the node.

#include <cstring>

#include "base/log.hpp"
#include "node/member_node.hpp"
#include "node/table_handle.hpp"

namespace mv::node {

namespace {
/// What a call under way costs besides its payload, about: many small ones are memory too.
constexpr uint64_t kCallBytes = 512;
/// From this size on fresh memory, which comes page by page, costs more than a copy into it.
constexpr size_t kLargeBytes = 64 << 10;
}  // namespace

base::Nanos MemberNode::deadline(const CallOptions& options, bool gated) const {
  const base::Nanos span = options.timeout.count() != 0 ? options.timeout : gated ? settings_.gate_timeout : settings_.timeout;
  return base::after(loop_.now(), span);
}

/// What reading throws is its caller's; nothing has changed.
void MemberNode::read_on_loop(const std::function<void()>& read) {
  bool failed = false;
  on_loop([&] {
    try {
      read();
    } catch (const std::bad_alloc&) {
      failed = true;
    }
  });
  if (failed) throw std::bad_alloc();
}

void MemberNode::on_loop(const std::function<void()>& work) {
  std::atomic<bool> done{false};
  io::Task task = [&] {
    work();
    done.store(true, std::memory_order_release);
  };
  const auto is_done = [&] { return done.load(std::memory_order_acquire); };
  io::Driven driven = loop_.drive_until(is_done, base::kNever, std::move(task));
  while (driven == io::Driven::kInterrupted) driven = loop_.drive_until(is_done, base::kNever);
}

/// By the loop's own word, which comes first: its drivers return before the node hears of it.
base::Status MemberNode::ended() const {
  const base::Status* const why = loop_.defect();
  return why != nullptr ? *why : base::Status(MV_ESTATE, "the node is shutting down");
}

/// Ends it with this code, and a text that says what became of it; where that is not up to its caller it goes on.
void MemberNode::withdraw(const CallRef& call, mv_status code) {
  if (const auto work = call->work(); work != nullptr && !work->is_on_loop()) return call->withdraw(code);
  on_loop([&] {
    for (const CallRef& part : call->open_parts()) part->withdraw(code);
    call->withdraw(code);
  });
}

/// `begin`, if given, is run on the loop: by this very thread, if nobody else drives it, so that no other needs to wake.
Started MemberNode::wait_blocking(const CallRef& call, const CallOptions& options, io::Task begin) {
  const io::Driven driven = loop_.drive_until([&] { return call->done(); }, base::kNever, std::move(begin));
  if (driven == io::Driven::kDone) return {call->status(), nullptr};
  if (driven != io::Driven::kInterrupted) return {ended(), nullptr};
  if (options.keep_on_interrupt) return {base::Status(MV_EINTR, "a signal interrupted the wait; the call goes on"), call};
  withdraw(call, MV_EINTR);
  if (loop_.defect() != nullptr && !call->done()) return {ended(), nullptr};
  if (!call->done()) return {base::Status(MV_EINTR, "a signal interrupted the wait; the call goes on without you"), nullptr};
  return {call->status(), nullptr};
}

Started MemberNode::run(const CallRef& call, const CallOptions& options, ps::Request request, const std::function<void()>& meanwhile) {
  request.operation = call;
  if (request.kind == ps::OpKind::kChange) call->set_table(request.table);
  io::Task begin = [this, request = std::move(request)]() mutable { member_->tables().begin(std::move(request)); };
  const bool blocking = options.mode == Mode::kBlocking;
  if (blocking && !meanwhile) return wait_blocking(call, options, std::move(begin));
  loop_.post(std::move(begin));
  no_way_back(meanwhile);  // this process's own part; the rest is on its way, and memory may be lent to it
  return blocking ? wait_blocking(call, options, {}) : Started{{}, call};
}

void MemberNode::forget(ps::Request request, const std::function<void()>& meanwhile) {
  loop_.post([this, request = std::move(request)]() mutable { member_->tables().begin(std::move(request)); });
  no_way_back(meanwhile);  // this process's own part; the rest is on its way, and memory may be lent to it
}

void MemberNode::no_way_back(const std::function<void()>& work) {
  if (!work) return;
  try {
    work();
  } catch (const std::exception& thrown) {
    loop_.break_down(&thrown);
    throw;
  }
}

void MemberNode::forget_small(const ps::TableViewRef& table, size_t server, base::Frame frame, uint64_t reserved) {
  // In 32 bits, so that the task fits into the loop's queue without an allocation.
  loop_.post([tables = &member_->tables(), table, frame = std::move(frame), server = static_cast<uint32_t>(server),
              reserved = static_cast<uint32_t>(reserved)]() mutable {
    tables->begin_small(table, server, std::move(frame), reserved);
  });
}

base::Result<uint64_t> MemberNode::reserve(uint64_t bytes, const CallOptions& options) {
  bytes += kCallBytes;
  std::atomic<uint64_t>& in_flight = member_->tables().in_flight();
  const auto fits = [&] {
    const uint64_t now = in_flight.load(std::memory_order_relaxed);
    return now == 0 || now + bytes <= settings_.inflight_bytes;
  };
  if (!fits()) {
    if (!told_of_limit_.exchange(true))
      base::log_warn("{} bytes of asynchronous adds are under way (inflight_bytes): calls wait until some are done", in_flight.load());
    const io::Driven driven = loop_.drive_until(fits, deadline(options, identity_.sync));
    if (driven == io::Driven::kInterrupted) return base::Status(MV_EINTR, "a signal came while earlier adds were under way; nothing was sent");
    if (driven == io::Driven::kStopped || driven == io::Driven::kBroken) return ended();
    if (driven != io::Driven::kDone) return base::Status(MV_ETIMEOUT, "earlier adds are still under way; not applied: nothing was sent");
  }
  in_flight.fetch_add(bytes, std::memory_order_relaxed);
  return bytes;
}

base::PayloadRef MemberNode::snapshot(std::span<const std::byte> bytes) {
  if (bytes.size() < kLargeBytes) return base::Payload::copy(bytes);
  const auto block = snapshots_.allocate(bytes.size(), tensor::Heap::Content::kAnything);
  if (!block.ok()) return base::Payload::copy(bytes);
  std::byte* const to = block.value()->data();
  std::memcpy(to, bytes.data(), bytes.size());
  return base::Payload::kept({to, bytes.size()}, block.value());
}

Started MemberNode::barrier(const CallOptions& options, Fence fence) {
  if (identity_.worker_id < 0) return {base::Status(MV_ESTATE, "barrier: this process is only a server"), nullptr};
  const CallRef call = make_call(options, true);
  return start(call, options, [this, call, fence] { member_->barrier(call, fence == Fence::kChanges); });
}

Started MemberNode::start(const CallRef& call, const CallOptions& options, io::Task begin) {
  if (options.mode == Mode::kBlocking) return wait_blocking(call, options, std::move(begin));
  loop_.post(std::move(begin));
  return {{}, call};
}

base::Status MemberNode::wait(const CallRef& call, base::Nanos timeout, bool* alive) {
  const base::Nanos until = timeout.count() == 0 ? base::kNever : base::after(loop_.now(), timeout);
  const io::Driven driven = loop_.drive_until([&] { return call->done(); }, until);
  *alive = !call->done() && driven != io::Driven::kBroken;
  if (!*alive) return result(call);
  if (driven == io::Driven::kInterrupted) return base::Status(MV_EINTR, "a signal interrupted the wait; the request goes on");
  if (driven == io::Driven::kStopped) return ended();
  return base::Status(MV_ETIMEOUT, "not finished yet; the request goes on");
}

void MemberNode::release(const CallRef& call) {
  if (call->done() && call->status().ok()) return;
  loop_.post([this, call] {
    call->release([this](ps::TableView* table, const base::Status& error) { member_->tables().tell_later(table, error); });
  });
}

base::Status MemberNode::cancel(const CallRef& call) {
  withdraw(call, MV_ECANCELED);
  return result(call);
}

base::Result<std::vector<int64_t>> MemberNode::poll(size_t most, base::Nanos timeout, const std::function<bool()>& or_until) {
  const auto is_due = [&] { return (most > 0 && !finished_.empty()) || (or_until && or_until()); };
  if (!is_due() && timeout.count() != 0) {
    const base::Status waited = wait_for(is_due, base::after(loop_.now(), timeout));
    if (!waited.ok() && waited.code() != MV_ETIMEOUT) return waited;
  }
  return finished_.take(most);
}

void MemberNode::callbacks_due(bool any) {
  finished_.also_readable(any);
  if (any) loop_.wake_waiters();
}

base::Status MemberNode::wait_until(const std::function<bool()>& done, base::Nanos timeout) {
  CallOptions options;
  options.timeout = timeout;
  return wait_for(done, deadline(options, false));
}

base::Status MemberNode::wait_for(const std::function<bool()>& done, base::Nanos until) {
  switch (loop_.drive_until(done, until)) {
    case io::Driven::kDone:
      return {};
    case io::Driven::kTimeout:
      return base::Status(MV_ETIMEOUT, "the deadline has passed");
    case io::Driven::kInterrupted:
      return base::Status(MV_EINTR, "a signal interrupted the wait");
    case io::Driven::kStopped:
    case io::Driven::kBroken:
      break;
  }
  return ended();
}

// ---- tables

/// What a creation or opening came to.
struct MemberNode::Outcome {
  std::atomic<bool> done{false};
  base::Result<std::vector<ps::TableViewRef>> tables = base::Status();
  std::vector<std::shared_ptr<table::Shard>> shards;
};

/// A creation that a signal has ended and that is tried again has the deadline of the first try.
base::Nanos MemberNode::creation_deadline(const std::string& name) {
  std::lock_guard lock(creations_mutex_);
  const auto [known, fresh] = creations_.try_emplace(name, deadline({}, true));
  if (!fresh && known->second < loop_.now()) known->second = deadline({}, true);  // of somebody who gave up
  return known->second;
}

base::Result<std::vector<TableRef>> MemberNode::finish_opening(const std::shared_ptr<Outcome>& outcome, const std::string& creating) {
  const auto done = [&] { return outcome->done.load(std::memory_order_acquire); };
  bool interrupted = false;
  while (loop_.drive_until(done, base::kNever) == io::Driven::kInterrupted) {
    interrupted = true;
    on_loop([&] { member_->tables().give_up_creation(creating); });
  }
  if (!done()) return ended();
  if (!outcome->tables.ok()) {
    const base::Status& why = outcome->tables.status();
    return interrupted && why.code() == MV_ETIMEOUT ? base::Status(MV_EINTR, "a signal interrupted the wait: " + why.text()) : why;
  }
  std::vector<TableRef> handles;
  handles.reserve(outcome->shards.size());
  for (size_t i = 0; i < outcome->shards.size(); ++i)
    handles.push_back(std::make_shared<TableHandle>(*this, outcome->tables.value()[i], outcome->shards[i]));
  return handles;
}

base::Result<std::vector<TableRef>> MemberNode::create_tables(std::vector<NewTable> tables) {
  if (identity_.worker_id < 0) return base::Status(MV_ESTATE, "only workers create tables; this process is only a server");
  if (tables.empty()) return std::vector<TableRef>();
  uint64_t bytes = 0;
  for (const auto& [shared_spec, initial] : tables) {
    const TableSpec& spec = *shared_spec;
    if (initial.values == nullptr || initial.count == 0) continue;
    if (spec.is_keyed())
      return base::error(MV_EINVAL, "table \"{}\" is {}: its initial value is `initial`, and rows are set once it is there", spec.name, spec.describe());
    if (base::Status wrong = check_data(spec, spec.rows, initial); !wrong.ok()) return wrong;
    bytes += spec.bytes();
  }
  std::vector<ps::Client::NewTable> asked;
  asked.reserve(tables.size());
  const bool counts = identity_.worker_id == 0;
  const std::shared_ptr<std::byte[]> values = std::make_shared_for_overwrite<std::byte[]>(counts ? bytes : 0);  // of all of them
  std::byte* to = values.get();
  for (auto& [spec, initial] : tables) {
    const bool given = initial.values != nullptr && initial.count > 0;
    base::PayloadRef copy;
    if (given && counts) {
      const uint64_t size = spec->bytes();
      std::memcpy(to, initial.values, size);
      copy = base::Payload::kept({to, size}, values);
      to += size;
    }
    asked.push_back({std::move(spec), std::move(copy), given});
  }
  const std::string first = asked.front().spec->name;
  const auto outcome = std::make_shared<Outcome>();
  const base::Nanos until = creation_deadline(first);
  const auto created = [this, outcome](base::Result<std::vector<ps::TableViewRef>> views) {
    if (views.ok())
      for (const ps::TableViewRef& view : views.value()) outcome->shards.push_back(own_shard(*view));
    outcome->tables = std::move(views);
    outcome->done.store(true, std::memory_order_release);
  };
  loop_.post([this, asked = std::move(asked), until, created]() mutable { member_->tables().create(std::move(asked), until, created); });
  auto opened = finish_opening(outcome, first);
  if (!opened.ok() && opened.status().code() == MV_EINTR && loop_.now() < until) return opened;
  std::lock_guard lock(creations_mutex_);
  creations_.erase(first);
  if (!opened.ok() && opened.status().code() == MV_EINTR) return base::Status(MV_ETIMEOUT, opened.status().text());
  return opened;
}

base::Result<TableRef> MemberNode::create_table(TableSpec spec, ConstData initial) {
  const bool unnamed = spec.name.empty();
  if (unnamed) spec.name = fmt::format("table-{}", unnamed_.load());
  std::vector<NewTable> one;
  one.push_back({std::make_shared<const TableSpec>(std::move(spec)), initial});
  auto created = create_tables(std::move(one));
  if (!created.ok()) return created.status();
  if (unnamed) ++unnamed_;
  return std::move(created.value().front());
}

base::Result<TableRef> MemberNode::open_table(const std::string& name) {
  if (identity_.worker_id < 0) return base::Status(MV_ESTATE, "only workers open tables; this process is only a server");
  const auto outcome = std::make_shared<Outcome>();
  loop_.post([this, outcome, name, until = deadline({}, false)] {
    member_->tables().open(name, until, [this, outcome](base::Result<ps::TableViewRef> view) {
      if (view.ok()) outcome->shards.push_back(own_shard(*view.value()));
      outcome->tables = view.ok() ? base::Result(std::vector{view.value()}) : view.status();
      outcome->done.store(true, std::memory_order_release);
    });
  });
  auto opened = finish_opening(outcome, "");
  if (!opened.ok()) return opened.status();
  return std::move(opened.value().front());
}

std::shared_ptr<table::Shard> MemberNode::own_shard(const ps::TableView& table) {
  if (identity_.server_id < 0 || table.pace == table::Pace::kSync) return nullptr;
  return member_->shards().shard(table.numbers[static_cast<size_t>(identity_.server_id)]);
}

base::Result<std::vector<TableSpec>> MemberNode::list_tables() {
  struct Listed {
    std::atomic<bool> done{false};
    base::Result<std::vector<TableSpec>> tables = base::Status();
  };
  const auto listed = std::make_shared<Listed>();
  loop_.post([this, listed, until = deadline({}, false)] {
    member_->tables().list(until, [listed](base::Result<std::vector<TableSpec>> tables) {
      listed->tables = std::move(tables);
      listed->done.store(true, std::memory_order_release);
    });
  });
  while (loop_.drive_until([&] { return listed->done.load(); }, base::kNever) == io::Driven::kInterrupted) {
  }
  return listed->done ? std::move(listed->tables) : ended();
}

}  // namespace mv::node
