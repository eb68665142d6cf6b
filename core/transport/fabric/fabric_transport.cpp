#include "transport/fabric/fabric_transport.hpp"

#include <sodium.h>

#include <algorithm>
#include <cstring>

#include "base/log.hpp"
#include "wire/frame.hpp"

namespace mv::transport {

namespace {

constexpr base::Nanos kTick = std::chrono::milliseconds(50);
/// A line that lived longer than this has not failed for the reason for which the last one did.
constexpr base::Nanos kShortLife = std::chrono::seconds(10);
constexpr size_t kMostAddress = 64 << 10;

void* as_user(uint64_t number) { return reinterpret_cast<void*>(number); }

TcpOptions with_ucx(TcpOptions options) {
  options.capabilities |= wire::kHasUcx;
  return options;
}

}  // namespace

FabricTransport::FabricTransport(Loop& loop, TcpOptions options, std::unique_ptr<Fabric> fabric)
    : loop_(loop),
      self_(options.self),
      patience_(options.hello_timeout),
      traffic_(loop, as_line_events(), std::move(fabric)),
      tcp_(loop, with_ucx(std::move(options))),
      timer_(loop, [this] { tick(); }) {
  loop_.add_flusher(*this);
}

FabricTransport::~FabricTransport() {
  stopping_ = true;
  traffic_.leave();
  loop_.remove_flusher(*this);
  for (auto& [peer, line] : lines_) hang_up(*line);
  drain();
}

/// Waits a little for what the fabric still reads or writes. Lines that have ended cancel it.
void FabricTransport::drain() {
  numbers_.clear();
  traffic_.drain(/*fetches_only=*/false);
  for (const Exposed& exposed : std::exchange(exposed_, {})) traffic_.fabric().conceal(exposed.handle);
  dead_.clear();
  lines_.clear();
}

void FabricTransport::attach(base::LinkEvents& events) {
  events_ = &events;
  tcp_.attach(as_events());
}

FabricTransport::Line* FabricTransport::find(base::Peer peer) const {
  const auto found = lines_.find(peer);
  return found == lines_.end() ? nullptr : found->second.get();
}

bool FabricTransport::carries(base::Peer peer) const {
  const Line* line = find(peer);
  return line != nullptr && line->state != State::kTcp;
}

std::string FabricTransport::why_not(base::Peer peer) const {
  const Line* line = find(peer);
  return line != nullptr && line->state == State::kTcp ? line->why_not : "";
}

// ------------------------------------------------------------ making lines

void FabricTransport::dial(const std::string& address) {
  dialed_.insert(address);
  tcp_.dial(address);
}

void FabricTransport::on_dial_failed(const std::string& address, const base::Status& why) {
  if (const auto dialed = dialed_.find(address); dialed != dialed_.end()) dialed_.erase(dialed);
  events_->on_dial_failed(address, why);
}

void FabricTransport::on_connected(base::Peer peer, const std::string& address) {
  const auto greeting = tcp_.greeting_of(peer);
  if (stopping_ || !greeting) return;
  Line* known = find(peer);
  if (known != nullptr && known->state == State::kClosing) {
    if (dialed_.contains(address)) on_dial_failed(address, base::error(MV_EPEERLOST, "{} and this node have disconnected permanently", address));
    return;
  }
  if (known != nullptr && known->greeting == *greeting) {  // by another dial
    known->addresses.push_back(address);
    if (known->state != State::kMaking && known->state != State::kBroken) report(*known);
    return;
  }
  Line& line = make_line(peer, *greeting);
  line.addresses.push_back(address);
  if ((greeting->capabilities & wire::kHasUcx) == 0) return use_tcp(line, "the other process does not use UCX: transport=ucx is not set there", false);
  if (const std::string cipher = tcp_.cipher_of(peer); !cipher.empty())
    return use_tcp(line, fmt::format("UCX does not encrypt, and this connection is encrypted by {}; tls=off (POLYVERSO_TLS) in all processes would allow it", cipher),
                   false);
  if (line.failures >= kMostFailures) return use_tcp(line, fmt::format("UCX has failed {} times with this process: {}", line.failures, line.why_not), true);
  tell(line, traffic_.fabric().address(), "");
}

/// Replaces the line of an earlier connection with the same peer.
FabricTransport::Line& FabricTransport::make_line(base::Peer peer, const TcpTransport::Greeting& greeting) {
  auto line = std::make_unique<Line>();
  line->peer = peer;
  line->greeting = greeting;
  randombytes_buf(&line->number, sizeof line->number);
  line->deadline = loop_.now() + patience_;
  if (Line* old = find(peer)) {
    line->addresses = std::move(old->addresses);
    line->address = old->address;
    line->was_reported = old->was_reported;
    line->failures = old->failures;
    line->why_not = old->why_not;
    drop(peer);
  }
  numbers_[line->number] = line.get();
  need_tick();
  return *(lines_[peer] = std::move(line));
}

void FabricTransport::tell(const Line& line, std::span<const std::byte> address, const std::string& why) {
  wire::FrameBuilder builder;
  auto& fbb = builder.fbb();
  const auto bytes = fbb.CreateVector(reinterpret_cast<const uint8_t*>(address.data()), address.size());
  const auto reason = fbb.CreateString(why);
  tcp_.send(line.peer, builder.finish(wire::Body::FabricLine, wire::CreateFabricLine(fbb, line.number, bytes, reason)));
}

void FabricTransport::take_address(Line& line, const wire::FabricLine& said) {
  const bool has_address = said.address() != nullptr && said.address()->size() > 0 && said.address()->size() <= kMostAddress;
  if (!has_address) {
    if (line.state == State::kMaking || line.state == State::kFabric)
      use_tcp(line, fmt::format("the other process uses TCP: {}", said.why() != nullptr ? said.why()->c_str() : ""), false);
    return;
  }
  if (line.state != State::kMaking || line.handle != nullptr) return;
  const std::span<const std::byte> address(reinterpret_cast<const std::byte*>(said.address()->data()), said.address()->size());
  const auto handle = traffic_.fabric().connect(address, as_user(line.number));
  if (!handle.ok()) return use_tcp(line, handle.status().text(), true);
  line.handle = handle.value();
  line.number_there = said.line();
  const std::span<const std::byte> own_address = traffic_.fabric().address();
  line.sends = line_token(line.greeting.key, self_, own_address, line.peer, address);
  line.expects = line_token(line.greeting.key, line.peer, address, self_, own_address);
  line.receiver = traffic_.make_receiver(*events_, line.peer, line.number);
  traffic_.send(line, LineKind::kOpen);
  if (!line.first) return;
  Arrival first = std::move(*line.first);
  line.first.reset();
  on_arrival(std::move(first));
}

/// From now on messages to this peer go by TCP.
void FabricTransport::use_tcp(Line& line, const std::string& why, bool tells) {
  hang_up(line);
  line.state = State::kTcp;
  line.deadline = base::kNever;
  line.why_not = why;
  if (tells) tell(line, {}, why);
  const std::string& address = line.addresses.empty() ? line.address : line.addresses.back();
  if (!std::exchange(told_of_tcp_, true)) base::log_warn("messages with {} go by TCP, not by UCX: {}", address, why);
  report(line);
}

/// The callbacks may end the line.
void FabricTransport::report(Line& line) {
  const base::Peer peer = line.peer;
  std::vector<std::string> addresses = std::exchange(line.addresses, {});
  if (addresses.empty()) addresses.push_back(line.address);
  line.address = addresses.back();
  line.was_reported = true;
  for (const std::string& address : addresses) {
    if (const auto dialed = dialed_.find(address); dialed != dialed_.end()) dialed_.erase(dialed);
    events_->on_connected(peer, address);
  }
}

// ------------------------------------------------------------ messages by TCP

/// Whether messages from the peer are expected that way, or whether the peer has just chosen it.
bool FabricTransport::comes_by_tcp(base::Peer from) {
  Line* line = find(from);
  if (line == nullptr || line->state == State::kTcp) return true;  // an observer has no line
  if (line->state != State::kMaking && line->state != State::kFabric) return false;
  use_tcp(*line, "the other process has chosen TCP", false);
  line = find(from);
  return line != nullptr && line->state == State::kTcp;
}

void FabricTransport::on_part(base::Peer from) {
  const Line* line = find(from);
  if (line == nullptr || (line->was_reported && line->state != State::kClosing)) events_->on_part(from);
}

void FabricTransport::on_message(base::Peer from, const wire::Message& message, std::span<const std::byte> payload) {
  if (const auto* said = message.body_as_FabricLine()) {
    if (Line* line = find(from)) take_address(*line, *said);
    return;
  }
  if (const auto* asked = message.body_as_FabricAsk()) {
    if (Line* line = find(from)) give(*line, asked->table());
    return;
  }
  if (const auto* said = message.body_as_FabricDone()) return done_reading(from, said->address());
  if (const auto* said = message.body_as_FabricMemory()) {
    if (Line* line = find(from)) take_memory(*line, *said);
    return;
  }
  const size_t bytes = tcp_bytes_;
  if (!comes_by_tcp(from)) return;
  events_->on_arrived(from, bytes);
  events_->on_message(from, message, payload);
}

base::SinkRef FabricTransport::on_header(base::Peer from, const wire::Message& message, size_t bytes) {
  return comes_by_tcp(from) ? events_->on_header(from, message, bytes) : base::Sink::nowhere();
}

void FabricTransport::on_payload(base::Peer from, const wire::Message& message, base::Sink& sink) {
  const Line* line = find(from);
  if (line != nullptr && line->state != State::kTcp) return;
  events_->on_arrived(from, tcp_bytes_);
  events_->on_payload(from, message, sink);
}

// ------------------------------------------------------------ messages by the fabric

void FabricTransport::send(base::Peer to, const base::Frame& frame) {
  Line* line = find(to);
  if (line == nullptr || line->state == State::kTcp) return tcp_.send(to, frame);
  if (line->state == State::kFabric) traffic_.send(*line, frame);
}

void FabricTransport::on_arrival(Arrival arrival) {
  const LineHeader header = arrival.header();
  const auto found = numbers_.find(header.line);
  if (found == numbers_.end()) return;
  Line& line = *found->second;
  if (line.receiver == nullptr) {
    if (!line.first) line.first.emplace(std::move(arrival));
    return;
  }
  if (!FabricTraffic::is_genuine(line, header)) return;
  const uint64_t number = line.number;
  on_moved(number, line.receiver->take(std::move(arrival)));
}

void FabricTransport::on_line_failed(uint64_t number, const base::Status& why) {
  if (const auto line = numbers_.find(number); line != numbers_.end()) line_failed(*line->second, why.text());
}

void FabricTransport::on_moved(uint64_t number, const base::Status& status) {
  const auto found = numbers_.find(number);
  if (found == numbers_.end()) return;  // a callback has ended it
  Line& line = *found->second;
  if (!status.ok() && status.code() != MV_EPROTOCOL) return line_failed(line, status.text());
  if (!status.ok()) return lose(line, base::error(status.code(), "{}: {}", line.address, status.text()));
  if (line.receiver->goodbye()) return lose(line, base::error(MV_EPEERLOST, "{} closed the connection", line.address));
  if (line.state != State::kMaking || !line.receiver->opened()) return;
  line.state = State::kFabric;
  line.deadline = base::kNever;
  line.made_at = loop_.now();
  base::log_debug("messages with {:016x} go by {}", line.peer, about().version);
  FabricReceiver& receiver = *line.receiver;  // lives until the next flush(), whatever the callbacks do
  report(line);
  on_moved(number, receiver.resume());
}

// ------------------------------------------------------------ reading the memory of peers

bool FabricTransport::can_ask(base::Peer peer) const {
  const Line* line = find(peer);
  return line != nullptr && line->state == State::kFabric && traffic_.can_get();
}

void FabricTransport::ask(base::Peer peer, uint64_t table, Given given) {
  if (!can_ask(peer)) return given(nullptr);
  find(peer)->asks.emplace_back(table, std::move(given));
  wire::FrameBuilder builder;
  tcp_.send(peer, builder.finish(wire::Body::FabricAsk, wire::CreateFabricAsk(builder.fbb(), table)));
}

void FabricTransport::give(const Line& line, uint64_t table) {
  conceal_unused();
  const auto memory = source_ && can_ask(line.peer) ? source_(line.peer, table) : nullptr;
  Exposed* const exposed = memory != nullptr ? expose(memory) : nullptr;
  if (exposed != nullptr) exposed->readers.insert(line.peer);
  wire::FrameBuilder builder;
  auto& fbb = builder.fbb();
  const std::span<const std::byte> key = exposed != nullptr ? std::span<const std::byte>(exposed->handle.key) : std::span<const std::byte>();
  const auto bytes = fbb.CreateVector(reinterpret_cast<const uint8_t*>(key.data()), key.size());
  const auto answer = exposed != nullptr ? wire::CreateFabricMemory(fbb, table, reinterpret_cast<uint64_t>(memory->data()), memory->bytes(), bytes)
                                         : wire::CreateFabricMemory(fbb, table);
  tcp_.send(line.peer, builder.finish(wire::Body::FabricMemory, answer));
}

/// Null if the network can't.
FabricTransport::Exposed* FabricTransport::expose(const std::shared_ptr<base::SharedMemory>& memory) {
  const auto known = std::ranges::find(exposed_, memory, &Exposed::memory);
  if (known != exposed_.end()) return &*known;
  auto exposed = traffic_.fabric().expose({memory->data(), memory->bytes()});
  if (!exposed.ok()) {
    base::log_debug("peers can't read a table's memory: {}", exposed.status().text());
    return nullptr;
  }
  return &exposed_.emplace_back(memory, std::move(exposed).value());
}

void FabricTransport::done_reading(base::Peer peer, uint64_t address) {
  for (Exposed& exposed : exposed_) {
    if (reinterpret_cast<uint64_t>(exposed.memory->data()) != address) continue;
    if (const auto reader = exposed.readers.find(peer); reader != exposed.readers.end()) exposed.readers.erase(reader);
  }
  conceal_unused();
}

/// The tables of this memory are gone, and nobody may read it any more.
void FabricTransport::conceal_unused() {
  std::erase_if(exposed_, [this](const Exposed& exposed) {
    if (exposed.memory.use_count() > 1 || !exposed.readers.empty()) return false;
    traffic_.fabric().conceal(exposed.handle);
    return true;
  });
}

void FabricTransport::take_memory(Line& line, const wire::FabricMemory& said) {
  const auto asked = std::ranges::find(line.asks, said.table(), &std::pair<uint64_t, Given>::first);
  if (asked == line.asks.end()) return;
  const Given given = std::move(asked->second);
  line.asks.erase(asked);
  const bool has_key = said.key() != nullptr && said.key()->size() > 0 && said.key()->size() <= kMostAddress && line.handle != nullptr;
  if (!has_key || line.state != State::kFabric) return given(nullptr);
  const auto key = traffic_.fabric().open_key(line.handle, {reinterpret_cast<const std::byte*>(said.key()->data()), said.key()->size()});
  if (!key.ok()) {
    base::log_debug("can't read the memory of {}: {}", line.address, key.status().text());
    return given(nullptr);
  }
  ++memories_;
  auto right = std::make_shared<RemoteKey>(traffic_.fabric(), key.value());
  given(line.memories.emplace_back(std::make_shared<RemoteMemory>(traffic_, line.handle, std::move(right), said.address(), said.bytes())));
}

/// Tells peers which of their memory nobody here reads any more.
void FabricTransport::release_unused() {
  flushes_ = 0;
  for (const auto& [peer, line] : lines_)
    memories_ -= std::erase_if(line->memories, [this, peer](const std::shared_ptr<RemoteMemory>& memory) {
      if (memory.use_count() > 1 || !memory->is_idle()) return false;
      wire::FrameBuilder builder;
      tcp_.send(peer, builder.finish(wire::Body::FabricDone, wire::CreateFabricDone(builder.fbb(), memory->address())));
      return true;
    });
}

void FabricTransport::end_memories(Line& line) {
  memories_ -= line.memories.size();
  for (Exposed& exposed : exposed_) exposed.readers.erase(line.peer);
  for (const auto& [table, given] : std::exchange(line.asks, {})) given(nullptr);
  const auto memories = std::exchange(line.memories, {});
  for (const auto& memory : memories) memory->end();
  if (!memories.empty() && !stopping_ && on_memory_lost_) on_memory_lost_(line.peer);
}

// ------------------------------------------------------------ ends

void FabricTransport::hang_up(Line& line) {
  end_memories(line);
  numbers_.erase(line.number);
  line.first.reset();
  if (line.receiver != nullptr) line.receiver->stop();
  if (line.handle != nullptr) traffic_.fabric().disconnect(std::exchange(line.handle, nullptr));
}

/// Forgets the peer.
void FabricTransport::drop(base::Peer peer) {
  const auto found = lines_.find(peer);
  if (found == lines_.end()) return;
  hang_up(*found->second);
  dead_.push_back(std::move(found->second));
  lines_.erase(found);
  if (stopping_) loop_.post([] {});  // flush() may end the stop
}

void FabricTransport::line_failed(Line& line, const std::string& why) {
  base::log_debug("the line to {} by the fabric has failed: {}", line.address, why);
  if (line.state == State::kMaking) return use_tcp(line, why, true);
  if (line.state == State::kClosing) {
    tcp_.close(line.peer);
    return drop(line.peer);
  }
  if (line.state != State::kFabric) return;
  line.failures = loop_.now() - line.made_at < kShortLife ? line.failures + 1 : 1;
  line.why_not = why;
  line.state = State::kBroken;
  hang_up(line);
  tcp_.cut(line.peer);
}

/// The peer has announced its end, or sends invalid data: no message of it is accepted any more.
void FabricTransport::lose(Line& line, const base::Status& why) {
  const bool reports = line.was_reported && line.state != State::kClosing && !stopping_;
  const base::Peer peer = line.peer;
  tcp_.close(peer);
  drop(peer);
  if (reports) events_->on_lost(peer, why);
}

void FabricTransport::on_lost(base::Peer peer, const base::Status& why) {
  if (find(peer) == nullptr) return stopping_ ? void() : events_->on_lost(peer, why);  // an observer
  traffic_.poll();  // what the peer has sent before its end, perhaps its goodbye
  Line* line = find(peer);
  if (line == nullptr) return;
  const bool closing = line->state == State::kClosing, reported = line->was_reported;
  const std::vector<std::string> addresses = line->addresses;
  drop(peer);
  if (closing) return tcp_.close(peer);  // fences it
  if (stopping_) return;
  if (reported) return events_->on_lost(peer, why);
  for (const std::string& address : addresses)
    if (dialed_.contains(address)) on_dial_failed(address, base::error(MV_EUNREACHABLE, "{} was lost when it had just connected: {}", address, why.text()));
}

void FabricTransport::begin_closing(Line& line) {
  end_memories(line);
  line.receiver->stop();
  traffic_.send(line, LineKind::kGoodbye);
  line.state = State::kClosing;
  line.deadline = loop_.now() + kLinger;
  need_tick();
}

void FabricTransport::close(base::Peer peer) {
  Line* line = find(peer);
  if (line != nullptr && line->state == State::kClosing) return;
  if (line != nullptr && line->state == State::kFabric) return begin_closing(*line);
  if (line != nullptr) drop(peer);
  tcp_.close(peer);
}

void FabricTransport::stop(std::function<void()> stopped) {
  stopping_ = true;
  stopped_ = std::move(stopped);
  std::vector<base::Peer> others;
  for (auto& [peer, line] : lines_) {
    if (line->state == State::kFabric) begin_closing(*line);
    if (line->state != State::kClosing) others.push_back(peer);
  }
  for (const base::Peer peer : others) drop(peer);
  loop_.post([] {});
}

void FabricTransport::flush() {
  constexpr size_t kReleaseEvery = 64;
  dead_.clear();
  traffic_.flush();
  if (memories_ > 0 && ++flushes_ >= kReleaseEvery) release_unused();
  if (stopping_ && stopped_ && lines_.empty()) tcp_.stop(std::exchange(stopped_, nullptr));
}

void FabricTransport::need_tick() {
  if (!timer_.active()) timer_.start(kTick, kTick);
}

void FabricTransport::tick() {
  const Nanos now = loop_.now();
  std::vector<base::Peer> late;
  bool waiting = false;
  for (const auto& [peer, line] : lines_) {
    if (now >= line->deadline) late.push_back(peer);
    waiting |= line->deadline != base::kNever;
  }
  for (const base::Peer peer : late) {
    Line* line = find(peer);
    if (line == nullptr) continue;
    if (line->state == State::kMaking) {
      use_tcp(*line, fmt::format("no message of the other process came by UCX within {:g} s", base::seconds(patience_)), true);
    } else if (line->state == State::kClosing) {
      tcp_.close(peer);
      drop(peer);
    }
  }
  if (!waiting) timer_.stop();
}

}  // namespace mv::transport
