#include "engine/rpc/client.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

namespace mv::rpc {

namespace {
/// Finished requests in a window that begins with one that waits, or as many as wait there, if that is more.
constexpr size_t kMostFinished = 1024;
}  // namespace

base::SinkRef Pending::place(const wire::Message&, size_t) { return base::Sink::nowhere(); }

void Client::call(base::Peer server, Call&& call) {
  Stream& stream = streams_[server];
  if (!stream.lost.ok()) {
    call.pending->finish(stream.lost, nullptr, {});
    return;
  }
  if (stream.connected && stream.backlog.empty() && has_room(stream, call)) return start(server, stream, std::move(call));
  stream.backlog.push(std::move(call));
  pump(server, stream);
  connect_if_awaited(server, stream);
}

/// Last in a function: it may call back.
void Client::connect_if_awaited(base::Peer server, const Stream& stream) const {
  if (stream.connected || !connect_ || (is_idle(stream) && stream.backlog.empty())) return;
  connect_(stream.by != base::kNobody ? stream.by : server);
}

/// Calls each(number, request) in the order of the numbers, as long as it returns true.
template <typename Each>
void Client::for_each_in_flight(Stream& stream, Each each) {
  for (auto& [seq, sent] : stream.stragglers)
    if (!each(seq, sent)) return;
  for (size_t i = 0; i < stream.window.size(); ++i)
    if (!stream.window[i].finished && !each(stream.first + i, stream.window[i])) return;
}

Client::Sent* Client::find(Stream& stream, Seq seq) {
  if (seq < stream.first) {
    const auto straggler = stream.stragglers.find(seq);
    return straggler != stream.stragglers.end() ? &straggler->second : nullptr;
  }
  if (seq - stream.first >= stream.window.size()) return nullptr;
  Sent& sent = stream.window[seq - stream.first];
  return sent.finished ? nullptr : &sent;
}

/// The number of the request with this Pending that is in flight; 0: there is none.
Seq Client::in_flight(Stream& stream, const Pending* pending) {
  if (pending == nullptr || pending->number_ == 0) return 0;
  const auto is_it = [&](Seq seq) {
    const Sent* const sent = find(stream, seq);
    return sent != nullptr && sent->call.pending.get() == pending;
  };
  if (is_it(pending->number_)) return pending->number_;
  Seq found = 0;
  for_each_in_flight(stream, [&](Seq seq, const Sent& sent) {  // a Pending of several requests
    if (sent.call.pending.get() == pending) found = seq;
    return found == 0;
  });
  return found;
}

bool Client::has_room(const Stream& stream, const Call& call) const {
  const size_t window = call.window_bytes > 0 ? std::min(call.window_bytes, options_.window_bytes) : options_.window_bytes;
  const size_t under_way = call.wants_answer ? stream.window_bytes : stream.change_bytes;  // changes do not wait for gets
  return call.overtakes || under_way == 0 || under_way + call.cost <= window;
}

void Client::start(base::Peer server, Stream& stream, Call&& started) {
  stream.window_bytes += started.cost;
  if (!started.wants_answer) stream.change_bytes += started.cost;
  stream.window.push_back({std::move(started)});
  ++stream.open;
  Call& call = stream.window.back().call;
  call.pending->number_ = last(stream);
  if (call.make) call.frame = std::exchange(call.make, nullptr)();
  transmit(server, stream, last(stream), stream.window.back());
}

void Client::pump(base::Peer server, Stream& stream) {
  while (stream.connected && !stream.backlog.empty()) {
    std::optional<Call> next = stream.backlog.take([&](const Call& call) { return has_room(stream, call); });
    if (!next) return;
    start(server, stream, std::move(*next));
  }
}

void Client::send(base::Peer server, const Stream& stream, Seq seq, base::Frame& frame) {
  wire::stamp(frame, seq, done(stream));
  if (stream.part != 0) wire::stamp_part(frame, stream.part);
  link_.send(stream.by != base::kNobody ? stream.by : server, frame);
}

void Client::transmit(base::Peer server, Stream& stream, Seq seq, Sent& sent) {
  sent.data_sent = false;
  stream.owes_ack = false;
  send(server, stream, seq, sent.call.frame);
  if (stream.probe_at == base::kNever) heard(stream);
}

void Client::send_data(base::Peer server, Stream& stream, Seq seq, Sent& sent) {
  sent.data_sent = true;
  base::Frame frame = builder_.finish(wire::Body::Data, wire::CreateData(builder_.fbb(), seq), sent.call.offer);
  send(server, stream, 0, frame);
}

void Client::send_bare(base::Peer server, Stream& stream, wire::Body kind, Seq seq) {
  auto& fbb = builder_.fbb();
  base::Frame frame = kind == wire::Body::Cancel  ? builder_.finish(kind, wire::CreateCancel(fbb, seq))
                      : kind == wire::Body::Probe ? builder_.finish(kind, wire::CreateProbe(fbb, seq))
                                                  : builder_.finish(kind, wire::CreateSeen(fbb));
  send(server, stream, 0, frame);
}

void Client::cancel(base::Peer server, const Pending* pending) {
  Stream& stream = streams_[server];
  if (const Seq seq = in_flight(stream, pending); seq != 0) {
    find(stream, seq)->withdrawn = true;
    return send_bare(server, stream, wire::Body::Cancel, seq);
  }
  if (const PendingRef ended = stream.backlog.erase(pending)) ended->finish(base::Status(MV_ECANCELED, "withdrawn before it was sent"), nullptr, {});
}

void Client::abandon(base::Peer server, const Pending* pending, const base::Status& status, IfUnseen unseen) {
  Stream& stream = streams_[server];
  if (const Seq seq = in_flight(stream, pending); seq != 0) {
    Sent& sent = *find(stream, seq);
    // The server may still execute the request, or wait for its payload. The request stays in flight; its Pending goes.
    class Nobody final : public Pending {
      void finish(const base::Status&, const wire::Message*, std::span<const std::byte>) override {}
    };
    const PendingRef ended = std::exchange(sent.call.pending, std::make_shared<Nobody>());
    if (unseen == IfUnseen::kVoid) sent.call.frame = builder_.finish(wire::Body::List, wire::CreateList(builder_.fbb()));
    return ended->finish(status, nullptr, {});
  }
  cancel(server, pending);
}

bool Client::unsent(base::Peer server, const Pending* pending) {
  const auto found = streams_.find(server);
  return found == streams_.end() || in_flight(found->second, pending) == 0;
}

bool Client::is_lost(base::Peer server) const {
  const auto found = streams_.find(server);
  return found != streams_.end() && !found->second.lost.ok();
}

void Client::serve_by(base::Peer server, base::Peer by, uint32_t part, bool connected) {
  Stream& stream = streams_[server];
  if (!stream.lost.ok()) return;
  stream.by = by;
  stream.part = part;
  stream.connected = false;
  if (connected) return on_connected(server);
  connect_if_awaited(server, stream);
}

void Client::on_connected(base::Peer server) {
  Stream& stream = streams_[server];
  stream.connected = true;
  if (!is_idle(stream)) probe(server, stream);
  pump(server, stream);
}

void Client::on_lost(base::Peer server, const base::Status& why) {
  Stream& stream = streams_[server];
  if (!stream.lost.ok()) return;
  stream.lost = why;
  stream.connected = false;
  stream.probe_at = base::kNever;
  std::vector<PendingRef> ended;
  for_each_in_flight(stream, [&](Seq, Sent& sent) {
    ended.push_back(std::move(sent.call.pending));
    return true;
  });
  std::ranges::move(stream.backlog.clear(), std::back_inserter(ended));
  stream.stragglers.clear();
  stream.window.clear();
  stream.open = 0;
  for (const PendingRef& pending : ended) pending->finish(why, nullptr, {});
}

void Client::probe(base::Peer server, Stream& stream) {
  send_bare(server, stream, wire::Body::Probe, last(stream));
  if (options_.probe_after == base::kNever) return;
  stream.probe_wait = std::min(stream.probe_wait * 2, options_.probe_after * 16);
  stream.probe_at = clock_.now() + stream.probe_wait;
}

void Client::heard(Stream& stream) {
  if (options_.probe_after == base::kNever) return;
  stream.probe_wait = options_.probe_after;
  stream.probe_at = is_idle(stream) ? base::kNever : clock_.now() + stream.probe_wait;
}

/// `sent` is gone after this.
void Client::finish(Stream& stream, Seq seq, Sent& sent, const base::Status& status, const wire::Message* answer,
                    std::span<const std::byte> payload) {
  stream.window_bytes -= sent.call.cost;
  if (!sent.call.wants_answer) stream.change_bytes -= sent.call.cost;
  const PendingRef pending = std::move(sent.call.pending);
  if (seq < stream.first) {
    stream.stragglers.erase(seq);
  } else {
    sent.finished = true;
    sent.call.frame = {};
    sent.call.offer.reset();
    --stream.open;
  }
  pending->finish(status, answer, payload);
}

void Client::finish_through(Stream& stream, Seq done) {
  // By number, because finish() may append to the window, or end the stream.
  const auto finish_change = [&](Seq seq) {
    Sent* sent = find(stream, seq);
    if (sent != nullptr && !sent->call.wants_answer) finish(stream, seq, *sent, {}, nullptr, {});
  };
  for (auto next = stream.stragglers.begin(); next != stream.stragglers.end() && next->first <= done;) {
    const Seq seq = next->first;
    finish_change(seq);
    next = stream.stragglers.upper_bound(seq);
  }
  for (Seq seq = stream.first; seq <= done; ++seq) finish_change(seq);
}

/// Drops finished requests from the beginning of the window. A request that waits there leaves it, too, when many later ones have finished: the
/// memory for these must not grow for as long as it waits.
void Client::retire(Stream& stream) {
  const auto is_long = [&] { return stream.window.size() - stream.open > std::max(kMostFinished, stream.open); };
  while (!stream.window.empty() && (stream.window.front().finished || is_long())) {
    Sent& front = stream.window.front();
    if (!front.finished) {
      stream.stragglers.emplace_hint(stream.stragglers.end(), stream.first, std::move(front));
      --stream.open;
    }
    stream.window.pop_front();
    ++stream.first;
  }
}

base::SinkRef Client::on_answer_header(base::Peer server, const wire::Message& message, size_t bytes) {
  Sent* sent = find(streams_[server], message.seq());
  return sent != nullptr ? sent->call.pending->place(message, bytes) : base::Sink::nowhere();
}

void Client::on_answer(base::Peer server, const wire::Message& message, std::span<const std::byte> payload) {
  Stream& stream = streams_[server];
  if (!stream.lost.ok()) return;
  finish_through(stream, std::min(message.done(), last(stream)));
  switch (message.body_type()) {
    case wire::Body::Ack:
      break;
    case wire::Body::Progress:
      on_progress(server, stream, message);
      break;
    case wire::Body::Grant: {
      const Seq target = message.body_as_Grant()->target();
      Sent* sent = find(stream, target);
      if (sent != nullptr && sent->call.offer != nullptr) send_data(server, stream, target, *sent);
      break;
    }
    default:
      if (Sent* sent = find(stream, message.seq())) {
        const auto code = static_cast<mv_status>(message.status());
        const std::string text = message.text() != nullptr ? message.text()->str() : "";
        stream.owes_ack |= code != MV_OK;
        owes_acks_ |= stream.owes_ack;
        finish(stream, message.seq(), *sent, base::Status(code, text), &message, payload);
      }
  }
  if (!stream.lost.ok()) return;
  retire(stream);
  // Until a probe is answered, other answers do not put off the next one: they may come for ever, while the answer to a request is lost.
  const bool awaits_progress = stream.probe_wait > options_.probe_after && !is_idle(stream);
  if (!awaits_progress || message.body_type() == wire::Body::Progress) heard(stream);
  pump(server, stream);
}

void Client::on_progress(base::Peer server, Stream& stream, const wire::Message& message) {
  const auto* progress = message.body_as_Progress();
  std::vector<Seq> pending;
  if (progress->pending() != nullptr) pending.assign(progress->pending()->begin(), progress->pending()->end());
  std::sort(pending.begin(), pending.end());
  // In the order of the numbers, because the server keeps few that come too early.
  Seq next = std::max(progress->next(), done(stream) + 1);
  for_each_in_flight(stream, [&](Seq seq, Sent& sent) {
    if (stream.part != 0) skip_finished(server, stream, next, seq);
    if (seq > progress->through()) return stream.part != 0;
    if (!std::binary_search(pending.begin(), pending.end(), seq)) {
      ++repeated_;
      transmit(server, stream, seq, sent);
    }
    if (sent.withdrawn) send_bare(server, stream, wire::Body::Cancel, seq);  // the first Cancel may be lost
    return true;
  });
  if (stream.part != 0) skip_finished(server, stream, next, last(stream) + 1);
}

/// Fills a gap that a former back-up sees, reads that its primary had answered: from `next` on, which goes behind `end`.
void Client::skip_finished(base::Peer server, Stream& stream, Seq& next, Seq end) {
  if (next < end) {
    base::Frame frame = builder_.finish(wire::Body::Skip, wire::CreateSkip(builder_.fbb(), end - next));
    send(server, stream, next, frame);
  }
  next = std::max(next, end + 1);
}

base::Nanos Client::next_deadline() const {
  base::Nanos next = base::kNever;
  if (options_.probe_after == base::kNever) return next;  // a process may have thousands of streams, and asks often
  for (const auto& [peer, stream] : streams_) next = std::min(next, stream.probe_at);
  return next;
}

void Client::tick() {
  const base::Nanos now = clock_.now();
  if (options_.probe_after == base::kNever) return;
  for (auto& [peer, stream] : streams_)
    if (stream.probe_at <= now) probe(peer, stream);
}

void Client::flush() {
  if (!std::exchange(owes_acks_, false)) return;
  for (auto& [peer, stream] : streams_) {
    if (!stream.owes_ack) continue;
    if (!stream.connected) {
      owes_acks_ = true;
      continue;
    }
    stream.owes_ack = false;
    send_bare(peer, stream, wire::Body::Seen, 0);
  }
}

}  // namespace mv::rpc
