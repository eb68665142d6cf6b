#include "transport/fabric/job_transport.hpp"

#include <sodium.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>

#include "base/log.hpp"

namespace mv::transport {

using wire::Handshake;
using wire::Refusal;

namespace {

constexpr std::string_view kScheme = "mpi";
constexpr base::Nanos kDeadlinesEvery = std::chrono::milliseconds(50);
constexpr uint32_t kMostPorts = 4096;

void* user_of(uint64_t number) { return reinterpret_cast<void*>(number); }

/// Takes ":NUMBER" from the front of the text.
std::optional<uint32_t> take_number(std::string_view& text) {
  uint32_t number = 0;
  if (!text.starts_with(':')) return std::nullopt;
  const auto [end, failure] = std::from_chars(text.data() + 1, text.data() + text.size(), number);
  if (failure != std::errc() || number > INT32_MAX) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

/// "mpi:RANK" or "mpi:RANK:PORT".
std::optional<mv_fabric_place> parse(std::string_view address) {
  if (!address.starts_with(kScheme)) return std::nullopt;
  address.remove_prefix(kScheme.size());
  const auto rank = take_number(address);
  if (!rank) return std::nullopt;
  if (address.empty()) return mv_fabric_place{static_cast<int32_t>(*rank), 0};
  const auto port = take_number(address);
  if (!port || *port >= kMostPorts || !address.empty()) return std::nullopt;
  return mv_fabric_place{static_cast<int32_t>(*rank), *port};
}

std::string text_of(const mv_fabric_place& place) {
  return place.port == 0 ? fmt::format("{}:{}", kScheme, place.rank) : fmt::format("{}:{}:{}", kScheme, place.rank, place.port);
}

base::Status nonsense(const std::string& address) {
  return base::error(MV_EINVAL, "\"{}\" is not an address in an MPI job; expected \"mpi:RANK\" or \"mpi:RANK:PORT\"", address);
}

}  // namespace

JobTransport::JobTransport(Loop& loop, JobOptions options, std::unique_ptr<Fabric> fabric)
    : loop_(loop),
      options_(std::move(options)),
      traffic_(loop, as_events(), std::move(fabric)),
      peering_(loop, options_),
      timer_(loop, [this] { tick(); }) {
  loop_.add_flusher(*this);
}

JobTransport::~JobTransport() {
  traffic_.leave();
  loop_.remove_flusher(*this);
  drain();
}

/// Waits a little for what the fabric still reads or writes. The peers notice the end of the fabric.
void JobTransport::drain() {
  stopping_ = true;
  for (auto& [number, line] : lines_)
    if (line->receiver != nullptr) line->receiver->stop();
  traffic_.drain(/*fetches_only=*/true);
  dead_.clear();
  for (auto& [number, line] : lines_) traffic_.fabric().disconnect(line->handle);
  lines_.clear();
  traffic_.drain(/*fetches_only=*/true);  // sends that nobody has fetched have ended
  traffic_.abandon();  // what is left is on its way to or from a process that has ended
}

std::string JobTransport::address_of(int64_t rank) { return fmt::format("{}:{}", kScheme, rank); }

JobTransport::Line* JobTransport::find(base::Peer peer) const {
  const auto found = peers_.find(peer);
  return found == peers_.end() ? nullptr : found->second;
}

JobTransport::Line* JobTransport::numbered(uint64_t number) const {
  const auto found = lines_.find(number);
  return found == lines_.end() ? nullptr : found->second.get();
}

// ------------------------------------------------------------ listening and dialing

base::Result<std::string> JobTransport::listen(const std::string& address) {
  if (address == kScheme) {  // any port
    for (uint32_t port = 1; port < kMostPorts; ++port) {
      auto bound = listen(text_of({about().rank, port}));
      if (bound.ok() || bound.status().code() != MV_EADDRINUSE) return bound;
    }
    return base::error(MV_EADDRINUSE, "this process has {} nodes in its MPI job already", kMostPorts);
  }
  const auto place = parse(address);
  if (!place) return nonsense(address);
  if (place->rank != about().rank)
    return base::error(MV_EINVAL, "{} is another process's address: this one has rank {} in its MPI job", address, about().rank);
  if (const base::Status status = traffic_.fabric().listen(place->port); !status.ok()) return base::error(status.code(), "{}: {}", address, status.text());
  own_address_ = address;
  return address;
}

base::Result<std::string> JobTransport::adopt(int listening_fd) {
  const Fd fd(listening_fd);
  return base::error(MV_ENOSYS, "transport=mpi does not accept sockets");
}

void JobTransport::dial(const std::string& address) {
  to_dial_.push_back(address);
  loop_.post([] {});  // one more turn: flush() may be the caller, after another dial has failed
}

void JobTransport::start_dial(const std::string& address) {
  const auto place = parse(address);
  if (!place) return events_->on_dial_failed(address, nonsense(address));
  auto line = std::make_unique<Line>(make_handshake(Handshake::Side::kDialer), true);
  line->address = address;
  randombytes_buf(&line->number, sizeof line->number);
  const auto handle = traffic_.fabric().connect(*place, user_of(line->number));
  if (!handle.ok()) return events_->on_dial_failed(address, base::error(handle.status().code(), "{}: {}", address, handle.status().text()));
  line->handle = handle.value();
  say_hello(add_line(std::move(line)));
}

Handshake JobTransport::make_handshake(Handshake::Side side) const {
  wire::Introduction self;
  self.address = own_address_;
  return peering_.handshake(side, std::move(self));
}

JobTransport::Line& JobTransport::add_line(std::unique_ptr<Line> line) {
  line->deadline = loop_.now() + options_.hello_timeout;
  need_tick();
  Line& made = *line;
  lines_[made.number] = std::move(line);
  if (!made.dialed) ++strangers_;
  return made;
}

/// Sends what the handshake has to say.
void JobTransport::say_hello(Line& line) {
  auto& output = line.handshake.output();
  if (output.empty()) return;
  auto sending = std::make_unique<LineSending>();
  sending->body = std::exchange(output, {});
  const bool first = line.dialed && line.number_there == 0;
  std::vector<std::byte> head(sizeof line.number);
  std::memcpy(head.data(), &line.number, sizeof line.number);
  const auto address = traffic_.fabric().address();
  if (first) head.insert(head.end(), address.begin(), address.end());
  traffic_.post(line, first ? LineKind::kDial : LineKind::kHello, head, std::move(sending));
}

// ------------------------------------------------------------ hellos

void JobTransport::take_dial(const Arrival& arrival) {
  if (stopping_ || strangers_ >= options_.max_strangers) return;
  uint64_t number = 0;
  if (arrival.head().size() <= sizeof number) return;
  std::memcpy(&number, arrival.head().data(), sizeof number);
  auto line = std::make_unique<Line>(make_handshake(Handshake::Side::kListener), false);
  line->address = "a process of this MPI job";
  line->number_there = number;
  randombytes_buf(&line->number, sizeof line->number);
  const auto handle = traffic_.fabric().connect(arrival.head().subspan(sizeof number), user_of(line->number));
  if (!handle.ok()) return base::log_warn("rejected a connection: {}", handle.status().text());
  line->handle = handle.value();
  take_hello(add_line(std::move(line)), arrival);
}

void JobTransport::take_hello(Line& line, const Arrival& arrival) {
  if (!arrival.is_here()) return;
  if (line.number_there == 0 && arrival.head().size() >= sizeof line.number_there)
    std::memcpy(&line.number_there, arrival.head().data(), sizeof line.number_there);
  line.input.insert(line.input.end(), arrival.body().begin(), arrival.body().end());
  feed(line.number);
}

/// Continues the hello as far as it goes. The line may end by that.
void JobTransport::feed(uint64_t number) {
  for (;;) {
    Line* line = numbered(number);
    if (line == nullptr || line->state != State::kGreeting || line->held) return;
    Handshake& handshake = line->handshake;
    if (handshake.undecided()) {
      if (!line->dialed && handshake.state() == Handshake::State::kSecret)
        handshake.prove(options_.secret);  // a process of this job: the work that it causes needs no limit
      else
        decide(*line);
      if (line->held) return;
    }
    say_hello(*line);
    if (handshake.state() == Handshake::State::kFailed) return fail_hello(*line, handshake.why(line->address));
    if (handshake.state() == Handshake::State::kDone) return greeted(*line);
    if (handshake.undecided()) continue;
    const size_t count = std::min(handshake.wants(), line->input.size());
    if (count == 0) return;
    const std::vector<std::byte> taken(line->input.begin(), line->input.begin() + static_cast<ptrdiff_t>(count));
    line->input.erase(line->input.begin(), line->input.begin() + static_cast<ptrdiff_t>(count));
    handshake.feed(taken);
  }
}

void JobTransport::decide(Line& line) {
  const base::Peer peer = line.handshake.peer().incarnation;
  // Our own dial to the same peer may have progressed as far as this one.
  const bool dialing = !line.dialed && std::any_of(lines_.begin(), lines_.end(), [&](const auto& item) {
    return item.second->dialed && item.second->peer == peer && item.second->state == State::kGreeting;
  });
  const Refusal refusal = peering_.refusal(peer, peers_.contains(peer), dialing);
  if (refusal != Refusal::kNone) return line.handshake.refuse(refusal);
  line.peer = peer;
  line.held = dialing;
  if (line.held) return;
  line.dialed ? line.handshake.prove(options_.secret) : line.handshake.accept();
}

/// Continues with a held line of `peer`: our own dial to it has ended.
void JobTransport::settle_held(base::Peer peer) {
  for (auto& [number, line] : lines_) {
    if (!line->held || line->peer != peer) continue;
    line->held = false;
    return feed(number);  // which may change lines_
  }
}

void JobTransport::greeted(Line& line) {
  const base::Peer peer = line.peer;
  if (!line.dialed) --strangers_;
  line.deadline = base::kNever;
  line.state = State::kOpen;
  if (stopping_ || peering_.is_fenced(peer) || peers_.contains(peer)) return drop(line);
  line.sends = line_token(line.handshake.key(), options_.self, {}, peer, {});
  line.expects = line_token(line.handshake.key(), peer, {}, options_.self, {});
  line.receiver = traffic_.make_receiver(*events_, peer, line.number);
  peers_[peer] = &line;
  if (!line.dialed && !line.handshake.peer().address.empty()) line.address = line.handshake.peer().address;
  line.sent = 0;
  traffic_.send(line, LineKind::kOpen);
  const std::string address = peering_.connected(peer, line.address);
  base::log_debug("connected with {} ({:016x}) by {}", address, peer, about().version);
  events_->on_connected(peer, address);
  settle_held(peer);
}

void JobTransport::fail_hello(Line& line, const base::Status& why) {
  const bool dialed = line.dialed;
  const Refusal refusal = line.handshake.refusal();
  const base::Peer met = line.handshake.peer().incarnation;
  const std::string address = line.address;
  drop(line);
  if (stopping_) return;
  if (!dialed) {
    if (refusal == Refusal::kSecret) {
      ++turned_away_;
      base::log_warn("rejected a connection: {}", why.text());
    }
  } else if (refusal != Refusal::kDuplicate) {
    events_->on_dial_failed(address, why);
  } else if (peers_.contains(met)) {
    events_->on_connected(met, address);
  } else {
    peering_.await(met, address);
    need_tick();
  }
  settle_held(met);
}

// ------------------------------------------------------------ traffic

void JobTransport::send(base::Peer to, const base::Frame& frame) {
  if (Line* line = find(to)) traffic_.send(*line, frame);
}

void JobTransport::on_arrival(Arrival arrival) {
  const LineHeader header = arrival.header();
  if (header.line == 0) return header.kind == LineKind::kDial ? take_dial(arrival) : void();
  Line* const line = numbered(header.line);
  if (line == nullptr) return;
  if (line->state == State::kGreeting) return header.kind == LineKind::kHello ? take_hello(*line, arrival) : void();
  if (!FabricTraffic::is_genuine(*line, header)) return;
  const uint64_t number = header.line;
  if (header.kind == LineKind::kFarewell) return line->state == State::kClosing ? drop(*line) : void();
  if (header.kind == LineKind::kCut) return line_failed(*line, base::error(MV_EUNREACHABLE, "{} was cut off", line->address));
  FabricReceiver& receiver = *line->receiver;  // lives until the next flush(), whatever the callbacks do
  const base::Status taken = receiver.take(std::move(arrival));
  on_moved(number, taken.ok() ? receiver.resume() : taken);
}

void JobTransport::on_moved(uint64_t number, const base::Status& status) {
  Line* const line = numbered(number);
  if (line == nullptr) return;  // a callback has ended it
  if (!status.ok()) return line_failed(*line, base::error(status.code(), "{}: {}", line->address, status.text()));
  if (!line->receiver->goodbye()) return;
  traffic_.send(*line, LineKind::kFarewell);
  if (line->state == State::kClosing) return drop(*line);
  lose(*line, base::error(MV_EPEERLOST, "{} closed the connection", line->address));
}

void JobTransport::on_line_failed(uint64_t number, const base::Status& why) {
  Line* const line = numbered(number);
  if (line == nullptr) return;
  line_failed(*line, base::error(line->state == State::kGreeting ? MV_EUNREACHABLE : why.code(), "{}: {}", line->address, why.text()));
}

// ------------------------------------------------------------ ends

/// Forgets the line.
void JobTransport::drop(Line& line) {
  const auto found = lines_.find(line.number);
  if (found == lines_.end()) return;
  if (line.state == State::kGreeting && !line.dialed) --strangers_;
  if (find(line.peer) == &line) peers_.erase(line.peer);
  if (line.receiver != nullptr) line.receiver->stop();
  traffic_.fabric().disconnect(line.handle);
  dead_.push_back(std::move(found->second));
  lines_.erase(found);
  if (stopping_) loop_.post([] {});  // flush() may end the stop
}

void JobTransport::line_failed(Line& line, const base::Status& why) {
  if (line.state == State::kGreeting) return fail_hello(line, why);
  if (line.state == State::kClosing) return drop(line);
  lose(line, why);
}

/// An open line has ended, and its peer never returns.
void JobTransport::lose(Line& line, const base::Status& why) {
  const base::Peer peer = line.peer;
  peering_.fence(peer);
  drop(line);
  if (stopping_) return;
  base::log_debug("{}", why.text());
  events_->on_lost(peer, why);
}

void JobTransport::begin_closing(Line& line) {
  peers_.erase(line.peer);
  line.receiver->stop();
  traffic_.send(line, LineKind::kGoodbye);
  line.state = State::kClosing;
  line.deadline = loop_.now() + kLinger;
  need_tick();
}

void JobTransport::close(base::Peer peer) {
  peering_.close(peer);
  if (Line* line = find(peer)) begin_closing(*line);
}

void JobTransport::cut(base::Peer peer) {
  Line* line = find(peer);
  if (line == nullptr) return;
  traffic_.send(*line, LineKind::kCut);
  cut_.push_back(line->number);
  loop_.post([] {});
}

void JobTransport::stop(std::function<void()> stopped) {
  stopping_ = true;
  stopped_ = std::move(stopped);
  peering_.stop();
  std::vector<Line*> all;
  for (auto& [number, line] : lines_) all.push_back(line.get());
  for (Line* line : all) {
    if (line->state == State::kOpen) begin_closing(*line);
    if (line->state == State::kGreeting) drop(*line);
  }
  loop_.post([] {});
}

void JobTransport::flush() {
  dead_.clear();
  for (const std::string& address : std::exchange(to_dial_, {}))
    if (!stopping_) start_dial(address);
  traffic_.flush();
  for (const uint64_t number : std::exchange(cut_, {}))
    if (Line* line = numbered(number)) line_failed(*line, base::error(MV_EUNREACHABLE, "{} was cut off", line->address));
  if (stopping_ && stopped_ && lines_.empty()) std::exchange(stopped_, nullptr)();
}

void JobTransport::need_tick() {
  if (!timer_.active()) timer_.start(kDeadlinesEvery, kDeadlinesEvery);
}

void JobTransport::tick() {
  const Nanos now = loop_.now();
  std::vector<uint64_t> late;
  for (const auto& [number, line] : lines_)
    if (now >= line->deadline) late.push_back(number);
  for (const uint64_t number : late) {
    Line* line = numbered(number);
    if (line == nullptr || now < line->deadline) continue;  // the end of another one's hello may have let this one in, or ended it
    if (line->state != State::kGreeting) {
      drop(*line);
      continue;
    }
    fail_hello(*line, peering_.too_slow(line->address));
  }
  peering_.tick([this](const std::string& address, const base::Status& why) { events_->on_dial_failed(address, why); });
  const bool waiting = peering_.awaits_any() || std::any_of(lines_.begin(), lines_.end(), [](const auto& item) { return item.second->deadline != base::kNever; });
  if (!waiting) timer_.stop();
}

}  // namespace mv::transport
