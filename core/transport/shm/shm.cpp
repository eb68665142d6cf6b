#include "transport/shm/shm.hpp"

#include <sched.h>

#include <algorithm>

#include "base/log.hpp"
#include "base/memory_fence.hpp"

namespace mv::transport {

using wire::Handshake;
using wire::Refusal;

namespace {

constexpr std::string_view kScheme = "shm:";
constexpr base::Nanos kTick = std::chrono::milliseconds(50);
constexpr size_t kMostName = 100;

std::optional<std::string> name_of(const std::string& address) {
  if (!address.starts_with(kScheme) || address.size() == kScheme.size() || address.size() > kMostName)
    return std::nullopt;
  return "polyverso-" + address.substr(kScheme.size());
}

}  // namespace

ShmTransport::ShmTransport(Loop& loop, ShmOptions options)
    : loop_(loop), options_(std::move(options)), peering_(loop, options_), timer_(loop, [this] { tick(); }) {
  loop_.add_flusher(*this);
  loop_.add_watched(*this);
}

ShmTransport::~ShmTransport() {
  loop_.remove_watched(*this);
  loop_.remove_flusher(*this);
}

std::string ShmTransport::address_of(base::Peer peer) { return fmt::format("{}{:016x}", kScheme, peer); }

// ------------------------------------------------------------ listening and dialing

base::Result<std::string> ShmTransport::listen(const std::string& address) {
  const auto name = name_of(address);
  if (!name)
    return base::error(MV_EINVAL, "\"{}\" is not an address for shared memory; expected \"shm:name\"", address);
  auto fd = listen_abstract(*name);
  if (!fd.ok()) return base::error(fd.status().code(), "{}: {}", address, fd.status().text());
  auto listener =
      std::make_unique<Listener>(loop_, std::move(fd).value(), [this](Fd accepted) { on_accept(std::move(accepted)); });
  if (!listener->ok()) return base::error(MV_ESYSTEM, "can't watch the socket of {}", address);
  listeners_[address] = std::move(listener);
  return address;
}

base::Result<std::string> ShmTransport::adopt(int listening_fd) {
  const Fd fd(listening_fd);
  return base::error(MV_ENOSYS, "the shm transport does not accept sockets");
}

void ShmTransport::on_accept(Fd fd) {
  if (!is_same_user(fd.get())) return base::log_debug("rejected a process of another user");
  if (strangers_ >= options_.max_strangers) return;  // closed: the peer may dial again
  Entry& entry = add_connection("a process of this machine", std::move(fd), /*dialed=*/false);
  entry.stranger = true;
  ++strangers_;
  entry.connection->greet(make_handshake(Handshake::Side::kListener));
}

void ShmTransport::dial(const std::string& address) {
  to_dial_.push_back(address);
  loop_.post([] {});  // one more turn: flush() may be the caller, after another dial has failed
}

void ShmTransport::start_dial(const std::string& address) {
  const auto name = name_of(address);
  auto fd = name ? connect_abstract(*name)
                 : base::error(MV_EINVAL, "\"{}\" is not an address for shared memory; expected \"shm:name\"", address);
  if (!fd.ok())
    return events_->on_dial_failed(address, base::error(fd.status().code(), "{}: {}", address, fd.status().text()));
  add_connection(address, std::move(fd).value(), /*dialed=*/true)
      .connection->greet(make_handshake(Handshake::Side::kDialer));
}

ShmTransport::Entry& ShmTransport::add_connection(const std::string& address, Fd fd, bool dialed) {
  auto connection = std::make_unique<ShmConnection>(loop_, as_owner(), address, std::move(fd));
  const ShmConnection* key = connection.get();
  Entry& entry = connections_[key];
  entry.connection = std::move(connection);
  entry.dialed = dialed;
  entry.deadline = loop_.now() + options_.hello_timeout;
  need_tick();
  return entry;
}

/// Forgets a connection that has ended.
void ShmTransport::bury(ShmConnection& connection) {
  const auto found = connections_.find(&connection);
  if (found == connections_.end()) return;
  connection.kill();
  if (found->second.stranger) --strangers_;
  std::erase(open_, &connection);
  dead_.push_back(std::move(found->second.connection));
  connections_.erase(found);
}

// ------------------------------------------------------------ hellos

Handshake ShmTransport::make_handshake(Handshake::Side side) const {
  wire::Introduction self;
  self.address = listeners_.empty() ? "" : listeners_.begin()->first;
  return peering_.handshake(side, std::move(self));
}

void ShmTransport::on_deciding(ShmConnection& connection) {
  Entry& entry = entry_of(connection);
  if (entry.dialed || connection.handshake().state() == Handshake::State::kDeciding) return decide(entry);
  connection.handshake().prove(options_.secret);  // a process of this user: the work that it causes needs no limit
  connection.continue_greeting();
}

void ShmTransport::decide(Entry& entry) {
  ShmConnection& connection = *entry.connection;
  const base::Peer peer = connection.handshake().peer().incarnation;
  // Our own dial to the same peer may have progressed as far as this one.
  const bool dialing = !entry.dialed && std::any_of(connections_.begin(), connections_.end(), [&](const auto& item) {
    const Entry& other = item.second;
    return other.dialed && other.peer == peer && other.connection->state() < ShmConnection::State::kOpen;
  });
  const Refusal refusal = peering_.refusal(peer, peers_.contains(peer), dialing);
  if (refusal != Refusal::kNone) {
    connection.handshake().refuse(refusal);
    return connection.continue_greeting();
  }
  entry.peer = peer;
  entry.held = dialing || (admission_ && !admission_(peer));
  if (entry.held) return;
  entry.dialed ? connection.handshake().prove(options_.secret) : connection.handshake().accept();
  connection.continue_greeting();
}

/// Decides about a held connection of `peer`: our own dial to it has ended, or it is admitted.
void ShmTransport::settle_held(base::Peer peer) {
  for (auto& [key, entry] : connections_) {
    if (!entry.held || entry.peer != peer) continue;
    entry.held = false;
    return decide(entry);  // which may change connections_
  }
}

void ShmTransport::on_standing(ShmConnection& connection) {
  Entry& entry = entry_of(connection);
  const base::Peer peer = entry.peer;
  if (std::exchange(entry.stranger, false)) --strangers_;
  entry.deadline = base::kNever;
  if (stopping_ || peering_.is_fenced(peer) || peers_.contains(peer)) return bury(connection);
  connection.open(*events_, peer);
  peers_[peer] = &connection;
  open_.push_back(&connection);
  events_->on_connected(peer, peering_.connected(peer, entry.dialed ? connection.address() : connection.handshake().peer().address));
  settle_held(peer);
}

void ShmTransport::on_failed(ShmConnection& connection, const base::Status& why) {
  Entry& entry = entry_of(connection);
  const bool dialed = entry.dialed;
  const Refusal refusal = connection.handshake().refusal();
  const base::Peer met = connection.handshake().peer().incarnation;
  const std::string address = connection.address();
  bury(connection);
  if (stopping_) return;
  if (!dialed) {
    base::log_debug("rejected a connection: {}", why.text());
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

ShmConnection* ShmTransport::find(base::Peer peer) const {
  const auto known = peers_.find(peer);
  return known == peers_.end() ? nullptr : known->second;
}

void ShmTransport::send(base::Peer to, const base::Frame& frame) {
  if (ShmConnection* connection = find(to)) connection->send(frame);
}

void ShmTransport::flush() {
  dead_.clear();
  for (const std::string& address : std::exchange(to_dial_, {})) {
    if (!stopping_) start_dial(address);
  }
  for (ShmConnection* connection : open_) connection->flush();
  if (stopping_ && stopped_ && connections_.empty()) std::exchange(stopped_, nullptr)();
}

bool ShmTransport::poll() {
  bool any = false;
  // By index: a message may open and end connections.
  for (size_t i = 0; i < open_.size(); ++i) any |= open_[i]->poll();
  return any;
}

bool ShmTransport::before_sleep() {
  for (ShmConnection* connection : open_) connection->say_asleep();
  base::full_fence();
  if (std::all_of(open_.begin(), open_.end(), [](const ShmConnection* c) { return c->is_quiet(); })) return true;
  after_sleep();
  return false;
}

void ShmTransport::after_sleep() {
  for (ShmConnection* connection : open_) connection->say_awake();
}

Watched::Writers ShmTransport::writers() const {
  if (open_.empty()) return Writers::kNone;
  const auto here = static_cast<uint32_t>(sched_getcpu());
  const bool elsewhere =
      std::any_of(open_.begin(), open_.end(), [here](const ShmConnection* c) { return c->is_elsewhere(here); });
  return elsewhere ? Writers::kElsewhere : Writers::kHere;
}

std::shared_ptr<base::SharedMemory> ShmTransport::on_asked(ShmConnection& connection, uint64_t table) {
  return source_ ? source_(entry_of(connection).peer, table) : nullptr;
}

void ShmTransport::drain(base::Peer peer) {
  if (ShmConnection* connection = find(peer)) connection->drain();
}

void ShmTransport::ask(base::Peer peer, uint64_t table, ShmConnection::Given given) {
  ShmConnection* connection = find(peer);
  connection != nullptr ? connection->ask(table, std::move(given)) : given(nullptr);
}

// ------------------------------------------------------------ ends

void ShmTransport::close(base::Peer peer) {
  peering_.close(peer);
  ShmConnection* connection = find(peer);
  if (connection == nullptr) return;
  peers_.erase(peer);
  connection->say_goodbye();
  entry_of(*connection).deadline = loop_.now() + kLinger;
  need_tick();
}

void ShmTransport::cut(base::Peer peer) {
  if (ShmConnection* connection = find(peer)) connection->cut();
}

void ShmTransport::stop(std::function<void()> stopped) {
  stopping_ = true;
  stopped_ = std::move(stopped);
  listeners_.clear();
  peers_.clear();
  peering_.stop();
  std::vector<ShmConnection*> all;
  for (auto& [key, entry] : connections_) all.push_back(entry.connection.get());
  for (ShmConnection* connection : all) {
    connection->say_goodbye();
    entry_of(*connection).deadline = loop_.now() + kLinger;
    if (connection->state() == ShmConnection::State::kDead) bury(*connection);
  }
  need_tick();
}

void ShmTransport::on_ended(ShmConnection& connection, End how, const base::Status& why) {
  const base::Peer peer = entry_of(connection).peer;
  bury(connection);
  if (stopping_ || how == End::kClosed) return;
  const auto known = peers_.find(peer);
  if (known == peers_.end() || known->second != &connection) return;
  peers_.erase(known);
  peering_.fence(peer);
  base::log_debug("{}", why.text());
  events_->on_lost(peer, why);
}

void ShmTransport::need_tick() {
  if (!timer_.active()) timer_.start(kTick, kTick);
}

void ShmTransport::tick() {
  const Nanos now = loop_.now();
  std::vector<ShmConnection*> late;
  for (auto& [key, entry] : connections_) {
    if (now >= entry.deadline) late.push_back(entry.connection.get());
  }
  for (ShmConnection* connection : late) {
    const auto found = connections_.find(connection);
    if (found == connections_.end() || now < found->second.deadline) continue;  // the end of another one's hello may have let this one in, or ended it
    if (connection->state() >= ShmConnection::State::kOpen) {
      bury(*connection);
      continue;
    }
    connection->kill();
    on_failed(*connection, peering_.too_slow(connection->address()));
  }
  peering_.tick([this](const std::string& address, const base::Status& why) { events_->on_dial_failed(address, why); });
  const bool waiting = peering_.awaits_any() || std::any_of(connections_.begin(), connections_.end(), [](const auto& item) {
    return item.second.deadline != base::kNever;
  });
  if (!waiting) timer_.stop();
}

}  // namespace mv::transport
