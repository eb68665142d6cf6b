#include "engine/channel/channels.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace mv::channel {

namespace {
/// A queue that belongs to no table: messages keep their order, and never wait for messages of a table.
constexpr uint64_t kQueue = UINT64_MAX - 1;
/// Bytes of one message.
constexpr size_t kPartBytes = 1 << 20;
}  // namespace

/// Counts the answers to a number of requests. After the last one it calls over(first error).
class Channels::Answers final : public rpc::Pending {
 public:
  Answers(size_t open, Over over) : open_(open), over_(std::move(over)) {}
  void finish(const base::Status& status, const wire::Message*, std::span<const std::byte>) override {
    if (error_.ok()) error_ = status;
    if (--open_ == 0) over_(error_);
  }

 private:
  size_t open_;
  const Over over_;
  base::Status error_;
};

// ---- this node's end

void Channels::open(const std::string& channel, std::shared_ptr<Shared> shared, std::function<void()> wake) {
  End& end = ends_[channel];
  end.shared = std::move(shared);
  end.wake = std::move(wake);
}

void Channels::set_giving(const std::string& channel, bool on) {
  const auto found = ends_.find(channel);
  if (found == ends_.end()) return;
  found->second.gives = on;
  if (!on) give(channel, nullptr);
}

void Channels::close(const std::string& channel) {
  give(channel, nullptr);
  ends_.erase(channel);
}

void Channels::close_all() {
  while (!ends_.empty()) close(std::string(ends_.begin()->first));
}

Channels::Due Channels::take(const std::string& channel) {
  const auto found = ends_.find(channel);
  if (found == ends_.end()) return {};
  End& end = found->second;
  Due due{!end.asks.empty(), std::exchange(end.delivered, std::nullopt)};
  end.report();
  return due;
}

void Channels::give(const std::string& channel, const BytesRef& bytes) {
  const auto found = ends_.find(channel);
  if (found == ends_.end()) return;
  const auto asks = std::exchange(found->second.asks, {});
  found->second.report();
  for (const auto& [peer, ask] : asks) {
    if (bytes == nullptr || bytes->empty()) {
      server_.answer(ask.asked, builder_.answer({}));
      continue;
    }
    send(peer, channel, ask.number, bytes, [this, asked = ask.asked](const base::Status& status) {
      status.ok() ? server_.answer(asked, builder_.answer({})) : server_.fail(asked, status);
    });
  }
}

// ---- collecting and delivering

/// Begins a transfer with the other workers that are here, and connects to them. Ends it at once if there are none.
Channels::Begun Channels::begin(const base::OperationRef& call, const std::string& channel, std::shared_ptr<std::vector<Bytes>> collected) {
  Begun begun{next_number_++, {}};
  auto work = std::make_shared<base::WithdrawnBy>([this, number = begun.number](mv_status code) { end(number, base::Status(code, "withdrawn")); });
  call->begin(work);
  Transfer& transfer = transfers_[begun.number] = {call, std::move(work), channel, std::move(collected), {}};
  const auto workers = cluster_.view().workers();
  for (size_t worker = 0; worker < workers.size(); ++worker) {
    if (workers[worker]->peer == cluster_.self().peer || workers[worker]->state != cluster::MemberState::kHere) continue;
    begun.peers.push_back(workers[worker]->peer);
    transfer.open[begun.peers.back()].worker = worker;
  }
  if (begun.peers.empty()) end(begun.number, {});
  for (const base::Peer peer : begun.peers) cluster_.want(peer, cluster::Cluster::Dialer::kSelf);
  return begun;
}

void Channels::collect(const base::OperationRef& call, const std::string& channel, std::shared_ptr<std::vector<Bytes>> by_worker) {
  by_worker->assign(cluster_.view().workers().size(), {});
  const auto [number, peers] = begin(call, channel, std::move(by_worker));
  for (const base::Peer peer : peers) {
    const auto transfer = transfers_.find(number);
    if (transfer == transfers_.end()) return;  // the request to an earlier peer has failed at once
    rpc::Call request;
    request.frame = builder_.finish(wire::Body::ChannelAsk, wire::CreateChannelAskDirect(builder_.fbb(), channel.c_str(), number));
    request.pending = std::make_shared<Answers>(1, over(number, peer));
    request.queue = kQueue;
    transfer->second.open.at(peer).request = request.pending;
    client_.call(peer, std::move(request));
  }
}

void Channels::deliver(const base::OperationRef& call, const std::string& channel, const std::vector<BytesRef>& by_worker) {
  const auto [number, peers] = begin(call, channel, nullptr);
  for (const base::Peer peer : peers) {
    const auto transfer = transfers_.find(number);
    if (transfer == transfers_.end()) return;  // as in collect()
    const size_t worker = transfer->second.open.at(peer).worker;
    send(peer, channel, 0, worker < by_worker.size() ? by_worker[worker] : std::make_shared<const Bytes>(), over(number, peer));
  }
}

Channels::Over Channels::over(uint64_t number, base::Peer peer) {
  return [this, number, peer](const base::Status& status) { part_over(number, peer, status); };
}

/// Calls over() when the receiver has acknowledged all bytes, or refused some.
void Channels::send(base::Peer to, const std::string& channel, uint64_t number, const BytesRef& bytes, Over over) {
  const size_t parts = std::max<size_t>(1, (bytes->size() + kPartBytes - 1) / kPartBytes);
  const auto answers = std::make_shared<Answers>(parts, std::move(over));
  for (size_t part = 0; part < parts; ++part) {
    const auto payload = std::span(*bytes).subspan(part * kPartBytes, std::min(kPartBytes, bytes->size() - part * kPartBytes));
    auto& fbb = builder_.fbb();
    const auto body = wire::CreateChannelPartDirect(fbb, channel.c_str(), number, part * kPartBytes, bytes->size());
    rpc::Call change;
    change.frame = builder_.finish(wire::Body::ChannelPart, body, base::Payload::kept(payload, bytes));
    change.pending = answers;
    change.wants_answer = false;
    change.cost = payload.size();
    change.queue = kQueue;
    client_.call(to, std::move(change));
  }
}

/// A worker has given its bytes, or has those that were for it. One that is gone gives nothing, and needs nothing.
void Channels::part_over(uint64_t number, base::Peer peer, const base::Status& status) {
  const auto found = transfers_.find(number);
  if (found == transfers_.end()) return;
  Transfer& transfer = found->second;
  const auto part = transfer.open.find(peer);
  if (part == transfer.open.end()) return;
  if (!status.ok() && status.code() != MV_EPEERLOST && !client_.is_lost(peer))  // whatever the reason of the loss
    return end(number, base::error(status.code(), "{}: {}", cluster_.view().name(peer), status.text()));
  if (transfer.collected != nullptr && part->second.given.is_complete())
    (*transfer.collected)[part->second.worker] = std::move(part->second.given.bytes);
  transfer.open.erase(part);
  if (transfer.open.empty()) end(number, {});
}

void Channels::end(uint64_t number, const base::Status& status) {
  const auto ended = transfers_.extract(number);  // first, so that the answers to the cancels below are ignored
  if (ended.empty()) return;
  for (const auto& [peer, part] : ended.mapped().open) {
    if (part.request == nullptr) continue;
    client_.cancel(peer, part.request.get());
    client_.abandon(peer, part.request.get(), status);
  }
  ended.mapped().call->complete(status);
}

// ---- requests

void Channels::on_request(const rpc::Asked& asked, const wire::Message& request, std::span<const std::byte> payload) {
  if (cluster_.view().worker_id(asked.client) < 0)
    return server_.fail(asked, base::error(MV_EPROTOCOL, "{} is not a worker, and has no channels", cluster_.view().name(asked.client)));
  cluster_.want(asked.client);
  const auto text = [](const flatbuffers::String* name) { return name != nullptr ? name->str() : std::string(); };
  if (const auto* ask = request.body_as_ChannelAsk()) return on_ask(asked, text(ask->channel()), ask->number());
  const auto* part = request.body_as_ChannelPart();
  const base::Status refused = on_part(asked.client, text(part->channel()), *part, payload);
  refused.ok() ? server_.finish(asked) : server_.fail(asked, refused);
}

void Channels::on_ask(const rpc::Asked& asked, const std::string& channel, uint64_t number) {
  const auto found = ends_.find(channel);
  if (found == ends_.end() || !found->second.gives) return server_.answer(asked, builder_.answer({}));
  End& end = found->second;
  if (const auto older = end.asks.find(asked.client); older != end.asks.end())
    server_.fail(older->second.asked, base::Status(MV_ECANCELED, "the same worker has asked again"));
  end.asks[asked.client] = {asked, number};
  end.report();
}

base::Status Channels::on_part(base::Peer from, const std::string& channel, const wire::ChannelPart& part, std::span<const std::byte> payload) {
  const auto found = ends_.find(channel);
  if (found == ends_.end() && part.number() == 0 && part.bytes() == 0) return {};  // nothing is lost
  if (found == ends_.end()) return base::error(MV_ENOTFOUND, "it has not opened the channel \"{}\", or has closed it", channel);
  End& end = found->second;
  if (part.number() != 0) {
    const auto transfer = transfers_.find(part.number());
    const bool expected = transfer != transfers_.end() && transfer->second.collected != nullptr && transfer->second.channel == channel;
    const auto giver = expected ? transfer->second.open.find(from) : std::map<base::Peer, Transfer::Awaited>::iterator();
    if (!expected || giver == transfer->second.open.end()) return base::Status(MV_ESTATE, "it does not wait for these bytes, or no longer");
    return giver->second.given.add(part, payload, end.shared->limit);
  }
  if (part.first() == 0) end.sender = from;
  if (end.sender != from) return base::error(MV_ESTATE, "{} delivers bytes to it at the same time", cluster_.view().name(end.sender));
  if (base::Status wrong = end.arriving.add(part, payload, end.shared->limit); !wrong.ok() || !end.arriving.is_complete()) return wrong;
  end.delivered = std::move(std::exchange(end.arriving, {}).bytes);
  end.report();
  return {};
}

/// The first part begins anew. rpc delivers the others in order.
base::Status Channels::Assembly::add(const wire::ChannelPart& part, std::span<const std::byte> payload, uint64_t limit) {
  if (part.first() == 0) {
    *this = {};
    if (part.bytes() > limit) return base::error(MV_EPROTOCOL, "{} bytes for the channel; its limit here is {}", part.bytes(), limit);
    try {
      bytes.reserve(part.bytes());
    } catch (const std::bad_alloc&) {
      return base::error(MV_ENOMEM, "no memory for {} bytes", part.bytes());
    }
    total = part.bytes();
  }
  const bool follows = total == part.bytes() && part.first() == bytes.size();
  if (!follows || payload.size() > *total - bytes.size() || (payload.empty() && *total > 0))
    return base::error(MV_EPROTOCOL, "{} bytes from byte {} of {} on do not follow the earlier ones", payload.size(), part.first(), part.bytes());
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  return {};
}

void Channels::on_cancel(const rpc::Asked& asked) {
  for (auto& [channel, end] : ends_) {
    const auto ask = end.asks.find(asked.client);
    if (ask == end.asks.end() || ask->second.asked != asked) continue;
    end.asks.erase(ask);
    end.report();
    return server_.fail(asked, base::Status(MV_ETIMEOUT, "it has not given its bytes"));
  }
}

void Channels::gone(base::Peer peer) {
  for (auto& [channel, end] : ends_) {
    end.asks.erase(peer);
    if (end.sender == peer) end.arriving = {};
    end.report();
  }
  std::vector<uint64_t> numbers;
  for (const auto& [number, transfer] : transfers_) numbers.push_back(number);
  for (const uint64_t number : numbers) part_over(number, peer, base::Status(MV_EPEERLOST, "it is gone"));
}

// ---- time

base::Nanos Channels::next_deadline() const {
  base::Nanos next = base::kNever;
  for (const auto& [number, transfer] : transfers_) next = std::min(next, transfer.call->deadline());
  return next;
}

void Channels::tick() {
  const auto is_late = [now = clock_.now()](const auto& entry) { return entry.second.call->deadline() <= now; };
  for (auto late = std::ranges::find_if(transfers_, is_late); late != transfers_.end(); late = std::ranges::find_if(transfers_, is_late)) {
    std::vector<base::Peer> missing;
    for (const auto& [peer, part] : late->second.open) missing.push_back(peer);
    end(late->first, base::error(MV_ETIMEOUT, "no answer from {}", cluster_.view().names(missing)));
  }
}

}  // namespace mv::channel
