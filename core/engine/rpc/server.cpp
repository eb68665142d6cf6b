#include "engine/rpc/server.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace mv::rpc {

namespace {
/// A get runs again if its answer was lost.
bool is_get(wire::Body kind) { return kind == wire::Body::Get || kind == wire::Body::GetMany; }
bool is_get(const wire::Message& message) { return is_get(message.body_type()); }
constexpr size_t kMaxEarlyCount = 256;
constexpr size_t kMaxEarlyBytes = 1 << 20;
/// Requests between two that are replayed: gets, of which a client may finish any number while an earlier request of it waits.
constexpr Seq kMaxGap = Seq{1} << 40;
}  // namespace

void Server::on_message(base::Peer client, const wire::Message& message, std::span<const std::byte> payload,
                        const base::SinkRef& staged) {
  Stream& stream = streams_[client];
  acknowledged(stream, message.done());
  if (message.done() >= stream.next && part_ != 0) skip_through(stream, message.done());
  advance(client, stream);
  if (part_ != 0 && (stream.early.contains(stream.next) || stream.dropped >= stream.next)) {  // it waited for reads that another process has answered
    start_early(client);
    if (!streams_.contains(client)) return;
  }
  switch (message.body_type()) {
    case wire::Body::Seen:
      return;
    case wire::Body::Probe: {
      // If one of those up to `sent` is missing, later ones came too early, and large ones were not kept.
      const Seq sent = message.body_as_Probe()->sent();
      return send_progress(client, stream, sent > 0 && sent < stream.next ? sent : UINT64_MAX);
    }
    case wire::Body::Cancel: {
      const Asked target{client, message.body_as_Cancel()->target()};
      if (find_running(stream, target.seq) != nullptr) service_.on_cancel(target);
      return;
    }
    case wire::Body::Data:
      return on_data(client, stream, message, payload, staged);
    default:
      break;
  }
  if (message.seq() == 0) return;
  const bool discarded = staged != nullptr && staged->discards();
  const bool needs_payload = message.seq() >= stream.next || is_get(message);
  if (discarded && needs_payload) return drop(client, stream, message.seq());
  if (message.seq() < stream.next && message.body_type() != wire::Body::Skip) return repeat(client, stream, message, payload);
  if (message.seq() > stream.next) return stash(client, stream, message, payload);
  if (!service_.may_start({client, message.seq()}, message)) return;
  start(client, stream, message, payload, staged);
  start_early(client);
}

base::SinkRef Server::on_header(base::Peer client, const wire::Message& message, size_t bytes) {
  Stream& stream = streams_[client];
  if (message.body_type() == wire::Body::Data) {
    const Running* running = find_running(stream, message.body_as_Data()->target());
    const bool expected = running != nullptr && running->granted && !running->data_here;
    return expected ? service_.place(message, bytes) : base::Sink::nowhere();
  }
  if (message.done() >= stream.next && part_ != 0) skip_through(stream, message.done());
  // A large payload of an early or repeated request is not worth the memory. Only a repeated get needs its payload.
  const bool repeated_get = message.seq() < stream.next && is_get(message);
  if (message.seq() != stream.next && !repeated_get) return base::Sink::nowhere();
  return service_.place(message, bytes);
}

void Server::start(base::Peer client, Stream& stream, const wire::Message& message, std::span<const std::byte> payload,
                   const base::SinkRef& staged) {
  ++started_[static_cast<uint8_t>(message.body_type())];
  if (const wire::Skip* const skip = message.body_as_Skip()) return skip_gap(client, stream, message.seq() + std::min(skip->count(), kMaxGap) - 1);
  const Seq seq = stream.next++;
  stream.starting = seq;
  stream.start_state = {message.body_type()};
  service_.on_request({client, seq}, message, payload, staged);
  const auto found = streams_.find(client);  // again: the service may have dropped the client
  if (found != streams_.end() && std::exchange(found->second.starting, 0) == seq) found->second.running.emplace(seq, found->second.start_state);
}

void Server::start_early(base::Peer client) {
  for (;;) {
    const auto found = streams_.find(client);  // looked up again, because a service may have dropped the client
    if (found == streams_.end()) return;
    Stream& stream = found->second;
    const auto next = stream.early.find(stream.next);
    if (next == stream.early.end()) return ask_for_dropped(client, stream);
    if (!service_.may_start({client, next->first}, *flatbuffers::GetRoot<wire::Message>(next->second.header.data()))) return;
    const Early early = std::move(next->second);
    stream.early_bytes -= early.header.size() + early.payload.size();
    stream.early.erase(next);
    start(client, stream, *flatbuffers::GetRoot<wire::Message>(early.header.data()), early.payload, nullptr);
  }
}

/// The client has the answers to all requests up to `done`. A former back-up has not seen those that only read.
void Server::skip_through(Stream& stream, Seq done) {
  stream.next = done + 1;
  stream.done = std::max(stream.done, done);
  stream.finished.remove_through(done);
  const auto end = stream.early.upper_bound(done);
  for (auto early = stream.early.begin(); early != end; early = stream.early.erase(early)) stream.early_bytes -= early->second.header.size() + early->second.payload.size();
}

/// The client has the answers to the requests from the next one up to `through`.
void Server::skip_gap(base::Peer client, Stream& stream, Seq through) {
  if (through < stream.next) return;
  stream.finished.add(stream.next, through);
  stream.next = through + 1;
  advance(client, stream);
}

base::Status Server::replay(const Asked& asked, Seq done, const wire::Message& message, std::span<const std::byte> payload, const base::SinkRef& staged) {
  Stream& stream = streams_[asked.client];
  if (done >= asked.seq || asked.seq > std::max(stream.next, done + 1) + kMaxGap)
    return base::error(MV_EPROTOCOL, "a replayed request has number {} after {}, and its client has the answers up to {}", asked.seq, stream.next - 1, done);
  acknowledged(stream, done);
  if (done >= stream.next) skip_through(stream, done);
  advance(asked.client, stream);
  if (asked.seq < stream.next) {  // a get whose answer was lost
    if (find_running(stream, asked.seq) != nullptr) return {};
    stream.running.emplace(asked.seq, Running{message.body_type()});
    service_.on_request(asked, message, payload, staged);
    return {};
  }
  skip_gap(asked.client, stream, asked.seq - 1);
  start(asked.client, stream, message, payload, staged);
  return {};
}

void Server::replay_data(const Asked& asked, std::span<const std::byte> payload, const base::SinkRef& staged) {
  Running* const running = find_running(streams_[asked.client], asked.seq);
  if (running == nullptr || std::exchange(running->data_here, true)) return;
  service_.on_data(asked, payload, staged);
}

void Server::replay_cancel(const Asked& asked) {
  if (find_running(streams_[asked.client], asked.seq) != nullptr) service_.on_cancel(asked);
}

bool Server::is_idle() const {
  return std::ranges::all_of(streams_, [](const auto& entry) { return entry.second.running.empty() && entry.second.starting == 0; });
}

std::vector<flatbuffers::Offset<wire::StreamState>> Server::write_state(flatbuffers::FlatBufferBuilder& fbb) const {
  std::vector<flatbuffers::Offset<wire::StreamState>> states;
  for (const auto& [client, stream] : streams_) {
    std::vector<flatbuffers::Offset<wire::KeptAnswer>> kept;
    for (const auto& [seq, answer] : stream.kept) {
      const auto& head = answer.frame.head;
      const auto tail = answer.frame.tail != nullptr ? answer.frame.tail->bytes() : std::span<const std::byte>();
      const auto written = fbb.CreateVector(reinterpret_cast<const uint8_t*>(head.data()), head.size());
      kept.push_back(wire::CreateKeptAnswer(fbb, seq, answer.holds_done, written,
                                            tail.empty() ? 0 : fbb.CreateVector(reinterpret_cast<const uint8_t*>(tail.data()), tail.size())));
    }
    std::vector<Seq> finished;
    for (const auto& [first, last] : stream.finished.ranges()) finished.insert(finished.end(), {first, last});
    const auto finished_at = fbb.CreateVector(finished);
    states.push_back(wire::CreateStreamState(fbb, client, stream.next, stream.done, finished_at, fbb.CreateVector(kept)));
  }
  return states;
}

base::Status Server::restore(const wire::StreamState& state) {
  Stream& stream = streams_[state.client()];
  stream = {};
  stream.next = state.next();
  stream.done = state.done();
  if (const auto* const finished = state.finished(); finished != nullptr)
    for (uint32_t i = 0; i + 1 < finished->size(); i += 2) stream.finished.add(finished->Get(i), finished->Get(i + 1));
  if (state.kept() == nullptr) return {};
  const auto bytes_of = [](const flatbuffers::Vector<uint8_t>* bytes) {
    return bytes != nullptr ? std::as_bytes(std::span(bytes->data(), bytes->size())) : std::span<const std::byte>();
  };
  for (const wire::KeptAnswer* answer : *state.kept()) {
    const auto head = bytes_of(answer->head()), tail = bytes_of(answer->tail());
    base::Frame frame{{head.begin(), head.end()}, tail.empty() ? nullptr : base::Payload::copy(tail)};
    if (const base::Status wrong = wire::check(frame); !wrong.ok()) return wrong;
    stream.kept.emplace(answer->seq(), Kept{std::move(frame), answer->is_error()});
  }
  return {};
}

/// Forgets a request that arrived too early to be kept.
void Server::drop(base::Peer client, Stream& stream, Seq seq) {
  stream.dropped = std::max(stream.dropped, seq);
  if (seq == stream.next) ask_for_dropped(client, stream);  // the gap before it has closed meanwhile
}

/// The next request is none of those that came early. If it was dropped, the client is to send it again, with all up to the last that was.
void Server::ask_for_dropped(base::Peer client, Stream& stream) {
  if (stream.dropped >= stream.next) send_progress(client, stream, std::exchange(stream.dropped, 0));
}

/// Keeps a request that arrived before its predecessor, and reports the gap to the client once.
void Server::stash(base::Peer client, Stream& stream, const wire::Message& message, std::span<const std::byte> payload) {
  if (std::exchange(stream.gap_told, stream.next) != stream.next) send_progress(client, stream, message.seq() - 1);
  if (stream.early.size() >= kMaxEarlyCount || stream.early_bytes + payload.size() > kMaxEarlyBytes) return drop(client, stream, message.seq());
  Early early{wire::copy_header(message), {payload.begin(), payload.end()}};
  const size_t bytes = early.header.size() + early.payload.size();
  if (stream.early.emplace(message.seq(), std::move(early)).second) stream.early_bytes += bytes;
}

void Server::repeat(base::Peer client, Stream& stream, const wire::Message& message, std::span<const std::byte> payload) {
  const Seq seq = message.seq();
  ++duplicates_;
  if (find_running(stream, seq) != nullptr) return;
  if (const auto kept = stream.kept.find(seq); kept != stream.kept.end()) return send(client, stream, seq, kept->second.frame);
  if (is_get(message) || service_.starts_again(message)) {
    stream.running.emplace(seq, Running{message.body_type()});  // it still counts as finished: `done` does not decrease
    return service_.on_request({client, seq}, message, payload, nullptr);
  }
  base::Frame frame = builder_.answer({});
  send(client, stream, seq, frame);
}

void Server::on_data(base::Peer client, Stream& stream, const wire::Message& message, std::span<const std::byte> payload,
                     const base::SinkRef& staged) {
  const Seq seq = message.body_as_Data()->target();
  Running* running = find_running(stream, seq);
  if (running == nullptr || !running->granted || running->data_here) return;
  if (staged != nullptr && staged->discards()) return;
  running->data_here = true;
  service_.on_data({client, seq}, payload, staged);
}

void Server::acknowledged(Stream& stream, Seq done) {
  while (!stream.kept.empty() && stream.kept.begin()->first <= done) {
    if (stream.kept.begin()->second.holds_done) stream.finished.add(stream.kept.begin()->first);
    stream.kept.erase(stream.kept.begin());
  }
}

void Server::mark_finished(base::Peer client, Stream& stream, Seq seq) {
  if (seq != stream.done + 1 || !stream.finished.empty()) {
    stream.finished.add(seq);
    return advance(client, stream);
  }
  stream.done = seq;
  stream.owes_ack = true;
  if (!std::exchange(stream.dirty, true)) dirty_.push_back(client);
}

void Server::advance(base::Peer client, Stream& stream) {
  const Seq before = stream.done;
  while (!stream.finished.empty() && stream.finished.front().first <= stream.done + 1) {
    stream.done = std::max(stream.done, stream.finished.front().second);
    stream.finished.pop_front();
  }
  if (stream.done == before) return;
  stream.owes_ack = true;
  if (!std::exchange(stream.dirty, true)) dirty_.push_back(client);
}

Server::Running* Server::find_running(Stream& stream, Seq seq) {
  if (seq == 0) return nullptr;
  if (stream.starting == seq) return &stream.start_state;
  const auto entry = stream.running.find(seq);
  return entry != stream.running.end() ? &entry->second : nullptr;
}

Server::Stream* Server::take_running(const Asked& asked, Running* running) {
  const auto found = streams_.find(asked.client);
  if (found == streams_.end()) return nullptr;
  Stream& stream = found->second;
  const Running* entry = find_running(stream, asked.seq);
  if (entry == nullptr) return nullptr;
  if (running != nullptr) *running = *entry;
  if (stream.starting == asked.seq)
    stream.starting = 0;
  else
    stream.running.erase(asked.seq);
  return &stream;
}

void Server::send(base::Peer client, Stream& stream, Seq seq, base::Frame& frame) {
  wire::stamp(frame, seq, stream.done);
  if (part_ != 0) wire::stamp_part(frame, part_);
  stream.owes_ack = false;
  stream.late_changes = 0;
  link_.send(client, frame);
}

void Server::answer(const Asked& asked, base::Frame frame) {
  Running running;
  Stream* stream = take_running(asked, &running);
  if (stream == nullptr) return;
  mark_finished(asked.client, *stream, asked.seq);
  send(asked.client, *stream, asked.seq, frame);
  if (!is_get(running.kind)) stream->kept.emplace(asked.seq, Kept{std::move(frame)});
}

void Server::split(const Asked& asked, size_t parts, Over over) {
  const auto found = streams_.find(asked.client);
  if (found != streams_.end()) found->second.split.insert_or_assign(asked.seq, Split{parts, std::move(over)});
}

void Server::part_over(const Asked& asked, const base::Status& status) {
  const auto found = streams_.find(asked.client);
  if (found == streams_.end()) return;
  auto& splits = found->second.split;
  const auto split = splits.find(asked.seq);
  if (split == splits.end()) return;
  if (!status.ok() && split->second.error.ok()) split->second.error = status;
  if (--split->second.open > 0) return;
  const Split ended = std::move(split->second);
  splits.erase(split);
  const Asked whole{asked.client, asked.seq};
  if (ended.over) return ended.over(ended.error);
  ended.error.ok() ? finish(whole) : fail(whole, ended.error);
}

void Server::finish(const Asked& asked) {
  if (asked.part != 0) return part_over(asked, {});
  Stream* stream = take_running(asked);
  if (stream == nullptr) return;
  mark_finished(asked.client, *stream, asked.seq);
  if (asked.seq <= stream->done) return;
  base::Frame frame = builder_.answer({});  // an earlier request is still running, and must not delay this acknowledgement
  send(asked.client, *stream, asked.seq, frame);
}

void Server::finish_later(const Asked& asked, base::Nanos now) {
  const auto found = streams_.find(asked.client);
  if (found == streams_.end()) return;
  Stream& stream = found->second;
  const bool in_order = asked.seq == stream.done + 1 && stream.finished.empty();
  if (asked.part != 0 || !in_order || stream.dirty || stream.late_changes >= kMostLate) return finish(asked);
  if (take_running(asked) == nullptr) return;
  stream.done = asked.seq;
  stream.owes_ack = true;
  ++stream.late_changes;
  if (!std::exchange(stream.late, true)) late_.push_back(asked.client);
  if (late_at_ == base::kNever) late_at_ = now + kLatest;
}

void Server::fail(const Asked& asked, const base::Status& why) {
  if (asked.part != 0) return part_over(asked, why);
  Stream* stream = take_running(asked);
  if (stream == nullptr) return;
  Kept& kept = stream->kept.emplace(asked.seq, Kept{builder_.answer(why), true}).first->second;
  send(asked.client, *stream, asked.seq, kept.frame);
}

wire::Body Server::kind_of(const Asked& asked) {
  const auto found = streams_.find(asked.client);
  const Running* const running = found != streams_.end() ? find_running(found->second, asked.seq) : nullptr;
  return running != nullptr ? running->kind : wire::Body::NONE;
}

void Server::grant(const Asked& asked) {
  const auto found = streams_.find(asked.client);
  if (found == streams_.end()) return;
  Running* running = find_running(found->second, asked.seq);
  if (running == nullptr || std::exchange(running->granted, true)) return;
  send_grant(asked.client, found->second, asked.seq);
}

void Server::send_grant(base::Peer client, Stream& stream, Seq seq) {
  base::Frame frame = builder_.finish(wire::Body::Grant, wire::CreateGrant(builder_.fbb(), seq));
  send(client, stream, 0, frame);
}

void Server::send_progress(base::Peer client, Stream& stream, Seq through) {
  std::vector<Seq> pending;
  for (const auto& [seq, running] : stream.running) {
    pending.push_back(seq);
    if (running.granted && !running.data_here) send_grant(client, stream, seq);
  }
  for (const auto& [seq, early] : stream.early) pending.push_back(seq);
  auto& fbb = builder_.fbb();
  const auto list = fbb.CreateVector(pending);
  base::Frame frame = builder_.finish(wire::Body::Progress, wire::CreateProgress(fbb, stream.next, list, through));
  send(client, stream, 0, frame);
}

void Server::flush() {
  for (const base::Peer client : dirty_) {
    const auto found = streams_.find(client);
    if (found == streams_.end()) continue;
    Stream& stream = found->second;
    stream.dirty = false;
    send_ack(client, stream);
  }
  dirty_.clear();
}

void Server::tick(base::Nanos now) {
  if (now < late_at_) return;
  late_at_ = base::kNever;
  for (const base::Peer client : std::exchange(late_, {})) {
    const auto found = streams_.find(client);
    if (found == streams_.end()) continue;
    found->second.late = false;
    send_ack(client, found->second);
  }
}

void Server::acknowledge_many(base::Peer client) {
  const auto found = streams_.find(client);
  if (found != streams_.end() && found->second.late_changes >= kManyLate) send_ack(client, found->second);
}

void Server::acknowledge(base::Peer client) {
  if (const auto found = streams_.find(client); found != streams_.end()) send_ack(client, found->second);
}

void Server::send_ack(base::Peer client, Stream& stream) {
  if (!stream.owes_ack) return;
  base::Frame frame = ack_.finish([](wire::Ack&) {});
  send(client, stream, 0, frame);
}

}  // namespace mv::rpc
