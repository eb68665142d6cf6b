#include "transport/fabric/traffic.hpp"

#include <sodium.h>

#include "base/log.hpp"

namespace mv::transport {

FabricTraffic::FabricTraffic(Loop& loop, LineEvents& events, std::unique_ptr<Fabric> fabric)
    : loop_(loop), events_(events), fabric_(std::move(fabric)) {
  poll_ = Poll::make(loop_, fabric_->descriptor(), [this](int) { poll(); });
  if (poll_ != nullptr) poll_->watch(UV_READABLE);
  loop_.add_watched(*this);
}

FabricTraffic::~FabricTraffic() = default;

void FabricTraffic::leave() { loop_.remove_watched(*this); }

std::unique_ptr<FabricReceiver> FabricTraffic::make_receiver(base::LinkEvents& events, base::Peer peer, uint64_t line) {
  return std::make_unique<FabricReceiver>(*fabric_, events, peer, line, fetches_);
}

void FabricTraffic::send(LineEnd& line, const base::Frame& frame) {
  post_frame(*fabric_, frame, [&](LineKind kind, std::span<const std::byte> head, std::unique_ptr<LineSending> sending) {
    post(line, kind, head, std::move(sending));
  });
}

void FabricTraffic::post(LineEnd& line, LineKind kind, std::span<const std::byte> head, std::unique_ptr<LineSending> sending) {
  if (line.handle == nullptr) return;
  const LineHeader header{line.sends, line.number_there, line.sent++, kind, 0};
  const base::Status sent = send_message(*fabric_, line.handle, header, head, std::move(sending), sending_);
  if (sent.ok()) return;
  failed_.emplace_back(line.number, base::error(MV_EUNREACHABLE, "{}", sent.text()));
  loop_.post([] {});  // one more turn, in which flush() reports it
}

bool FabricTraffic::is_genuine(const LineEnd& line, const LineHeader& header) {
  if (sodium_memcmp(header.token.data(), line.expects.data(), header.token.size()) == 0) return true;
  base::log_debug("dropped a message by the fabric that does not come from {}", line.address);
  return false;
}

bool FabricTraffic::poll() {
  if (looking_) return false;
  looking_ = true;
  struct Looked {
    bool& looking;
    ~Looked() { looking = false; }
  } looked{looking_};
  const auto events = fabric_->progress();
  for (const mv_fabric_event& event : events) take_event(event);
  return !events.empty();
}

void FabricTraffic::take_event(const mv_fabric_event& event) {
  switch (event.kind) {
    case MV_FABRIC_ARRIVED:
      if (auto arrival = Arrival::of(*fabric_, event)) events_.on_arrival(std::move(*arrival));
      return;
    case MV_FABRIC_SENT:
      sending_.erase(static_cast<const LineSending*>(event.user));
      return;
    case MV_FABRIC_RECEIVED: {
      auto found = fetches_.extract(event.user);
      if (found.empty() || found.mapped()->receiver == nullptr) return;
      FabricReceiver* const receiver = found.mapped()->receiver;
      const uint64_t number = receiver->line();
      return events_.on_moved(number, receiver->fetched(std::move(found.mapped()), event.status));
    }
    case MV_FABRIC_GOT:
      return one_got(event.user, event.status == MV_OK ? base::Status() : base::error(event.status, "{}", event.why));
    case MV_FABRIC_FAILED:
      return events_.on_line_failed(reinterpret_cast<uint64_t>(event.user), base::error(event.status, "{}", event.why));
    case MV_FABRIC_TEAMED:
    case MV_FABRIC_REDUCED:  // of teams.hpp only
      return;
  }
}

void RemoteMemory::get(std::span<const RemoteRange> ranges, Got got) {
  if (traffic_ == nullptr) return got(base::error(MV_EUNREACHABLE, "the line to its process has ended"));
  traffic_->get(line_, key_, address_, ranges, std::move(got));
}

void FabricTraffic::get(mv_fabric_line line, const std::shared_ptr<RemoteKey>& key, uint64_t address, std::span<const RemoteRange> ranges,
                        RemoteMemory::Got got) {
  auto made = std::make_unique<Getting>();
  for (const RemoteRange& range : ranges) made->bytes += range.bytes;
  auto block = fabric_->block(made->bytes);
  if (!block.ok()) return got(block.status());
  made->block = std::move(block).value();
  made->key = key;
  made->got = std::move(got);
  made->open = 1;  // until all have begun
  Getting& getting = *made;
  gettings_.emplace(&getting, std::move(made));
  std::byte* to = getting.block->data();
  for (const RemoteRange& range : ranges) {
    ++getting.open;
    getting.failed = fabric_->get(line, key->key, address + range.from, {to, range.bytes}, &getting);
    if (!getting.failed.ok()) {
      --getting.open;
      break;
    }
    to += range.bytes;
  }
  one_got(&getting, {});
}

void FabricTraffic::one_got(const void* which, const base::Status& status) {
  const auto found = gettings_.find(which);
  if (found == gettings_.end()) return;
  Getting& getting = *found->second;
  if (!status.ok()) getting.failed = status;
  if (--getting.open > 0) return;
  const auto over = std::move(found->second);
  gettings_.erase(found);
  if (!over->failed.ok()) return over->got(over->failed);
  over->got(std::span<const std::byte>(over->block->data(), over->bytes));
}

void FabricTraffic::flush() {
  for (const auto& [number, why] : std::exchange(failed_, {})) events_.on_line_failed(number, why);
}

void FabricTraffic::drain(bool fetches_only) {
  constexpr int kMostTurns = 1000;
  try {
    for (int turn = 0; turn < kMostTurns && !(fetches_.empty() && gettings_.empty() && (fetches_only || sending_.empty())); ++turn) poll();
    for (int turn = 0; turn < 2; ++turn) poll();  // ends sends whose bodies have been fetched
  } catch (const std::bad_alloc&) {  // then it ends at once
  }
}

void FabricTraffic::abandon() {
  for (auto& [key, sending] : sending_) static_cast<void>(sending.release());
  for (auto& [key, fetch] : fetches_) static_cast<void>(fetch.release());
  for (auto& [key, getting] : gettings_) static_cast<void>(getting.release());
}

}  // namespace mv::transport
