#include "engine/replica/transfer.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "base/log.hpp"
#include "shard/on_device.hpp"

namespace mv::replica {

using wire::ReplicaEvent;

namespace {
constexpr size_t kSliceBytes = 256 << 10, kSlicesUnderWay = 4;
}  // namespace

class Transfer::Answered final : public rpc::Pending {
 public:
  Answered(std::weak_ptr<Transfer> transfer, void (Transfer::*done)(const base::Status&)) : transfer_(std::move(transfer)), done_(done) {}
  void finish(const base::Status& status, const wire::Message*, std::span<const std::byte>) override {
    if (const auto transfer = transfer_.lock()) (transfer.get()->*done_)(status);
  }

 private:
  const std::weak_ptr<Transfer> transfer_;  ///< it may be given up
  void (Transfer::*const done_)(const base::Status&);
};

Transfer::Transfer(rpc::Client& peers, Part& part, uint32_t number, base::Peer to, Events events)
    : peers_(peers), part_(part), number_(number), to_(to), events_(std::move(events)) {}

void Transfer::send(ReplicaEvent event, const wire::ReplicaRows* rows, const base::PayloadRef& payload, void (Transfer::*done)(const base::Status&)) {
  const uint64_t input = events_.pass ? part_.next_input() : 0;
  const auto body = wire::CreateReplicate(builder_.fbb(), number_, event, 0, 0, 0, 0, 0, 0, 0, nullptr, rows, 0, input);
  base::Frame frame = builder_.finish(wire::Body::Replicate, body, payload);
  ++under_way_;
  if (events_.pass)
    return events_.pass(std::move(frame), [transfer = weak_from_this(), done] {
      if (const auto self = transfer.lock()) (self.get()->*done)({});
    });
  // The receiver may not acknowledge inputs until the copy is complete (Parts::take_in()), and they fill the window then, so the copy must
  // overtake them.
  const size_t cost = frame.bytes();
  peers_.call(to_, {std::move(frame), std::make_shared<Answered>(weak_from_this(), done), false, cost, nullptr, true});
}

bool Transfer::start() try {
  if (!take_snapshots()) return false;
  is_sending_ = true;
  events_.passes_on();
  send_state();
  pump();
  return true;
} catch (const std::bad_alloc&) {  // this may be the only process with the part: it must not end because it has no memory for a copy
  values_.clear();
  if (is_sending_) refused(base::Status(MV_ENOMEM, "this process has no memory for it"));
  return is_sending_ || is_refused_;
}

bool Transfer::take_snapshots() {
  const table::Server& tables = part_.tables();
  for (uint32_t number = 0; number < tables.numbers(); ++number) {
    const auto shard = tables.shard(number);
    if (shard == nullptr || (!part_.has_all() && tables.is_without_backups(number))) continue;
    auto snapshot = shard->snapshot(shard::Scope::kAll);
    if (!snapshot.ok()) {  // a checkpoint is being saved, or there is no memory
      values_.clear();
      return false;
    }
    values_.push_back({number, std::move(snapshot).value()});
  }
  return true;
}

void Transfer::send_state() {
  part_.write_state([this](const base::PayloadRef& payload) { send(ReplicaEvent::State, nullptr, payload, &Transfer::sent); });
}

void Transfer::pump() try {
  while (is_sending_ && under_way_ < kSlicesUnderWay)
    if (!send_next()) {
      is_sending_ = false;
      send(ReplicaEvent::End, nullptr, nullptr, &Transfer::confirmed);
    }
} catch (const std::bad_alloc&) {  // see try_to_start()
  refused(base::Status(MV_ENOMEM, "this process has no memory for it"));
} catch (const shard::DeviceFailure& failure) {
  refused(failure.status());
}

/// Takes the next rows of the snapshots. False if there are none.
bool Transfer::cut_rows() {
  for (; !values_.empty(); values_.pop_front()) {
    const shard::Rows rows = values_.front().snapshot->next();
    if (rows.count == 0) continue;
    auto bytes = std::make_shared<std::vector<std::byte>>();
    const auto ids = std::as_bytes(std::span(rows.ids));
    bytes->reserve(ids.size() + rows.values.size() * (1 + rows.states.size()));
    bytes->insert(bytes->end(), ids.begin(), ids.end());
    bytes->insert(bytes->end(), rows.values.begin(), rows.values.end());
    for (const auto state : rows.states) bytes->insert(bytes->end(), state.begin(), state.end());
    cut_ = wire::ReplicaRows(values_.front().table, static_cast<uint32_t>(rows.states.size()), rows.first, rows.count, rows.ids.size(), 0,
                             bytes->size(), rows.worker, static_cast<uint8_t>(rows.content));
    rows_ = std::move(bytes);
    return true;
  }
  return false;
}

bool Transfer::send_next() {
  if (rows_ == nullptr && !cut_rows()) return false;
  const size_t from = cut_.from(), size = std::min<size_t>(kSliceBytes, cut_.bytes() - from);
  send(ReplicaEvent::Rows, &cut_, base::Payload::kept(std::span(*rows_).subspan(from, size), rows_), &Transfer::sent);
  cut_.mutate_from(from + size);
  if (cut_.from() == cut_.bytes()) rows_ = nullptr;
  return true;
}

void Transfer::sent(const base::Status& status) {
  --under_way_;
  status.ok() ? pump() : refused(status);
}

void Transfer::confirmed(const base::Status& status) {
  is_confirmed_ = status.ok();
  status.ok() ? events_.is_equal() : refused(status);
}

void Transfer::refused(const base::Status& why) {
  if (std::exchange(is_refused_, true) || peers_.is_lost(to_)) return;  // of a lost one, the master speaks
  is_sending_ = false;
  base::log_error("a new back-up does not get the copy of a part: {}", why.text());
  events_.failed();
}

}  // namespace mv::replica
