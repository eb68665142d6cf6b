#include "network.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace mv::sim {

using namespace std::chrono_literals;

namespace {
/// More losses in a row would make heartbeats of healthy nodes fail.
constexpr int kMostDroppedInARow = 2;
}  // namespace

std::span<const std::byte> Flight::body() const {
  if (tail != nullptr) return tail->bytes();
  if (payload != nullptr && !payload->empty()) return *payload;
  const auto prefix = wire::read_prefix(head).value();
  return std::span(head).subspan(wire::kPrefixBytes + wire::padded(prefix.header_bytes), prefix.payload_bytes);
}

// ---- endpoints

void Network::add(Peer peer, std::string name, std::string address, base::LinkEvents& events,
                  std::function<void()> touched) {
  listeners_[address] = peer;
  endpoints_[peer] = {std::move(name), std::move(address), &events, std::move(touched), {}, {}, Nanos(0)};
}

const std::string& Network::name(Peer peer) const { return endpoints_.at(peer).name; }

Network::Endpoint* Network::living(Peer peer) {
  const auto found = endpoints_.find(peer);
  return found == endpoints_.end() || found->second.events == nullptr ? nullptr : &found->second;
}

void Network::remove(Peer peer, bool orderly, bool told) {
  trace(orderly ? "ends" : "is killed", peer, peer);
  Endpoint& endpoint = endpoints_.at(peer);
  endpoint.events = nullptr;
  if (listeners_[endpoint.address] == peer) listeners_.erase(endpoint.address);
  for (const FlightRef& flight : std::exchange(endpoint.leaving, {})) {
    flight->stopped = !orderly;
    if (orderly) flight->payload = copy_of(flight->tail->bytes());
    flight->tail.reset();
  }
  for (auto& [ends, connection] : connections_) {
    if (connection.ended || (ends.first != peer && ends.second != peer)) continue;
    connection.ended = true;
    const Peer other = ends.first == peer ? ends.second : ends.first;
    const Way& way = connection.way[side(peer, other)];
    if (told)
      lose(other, peer, std::max({timeline_.now(), way.arrives, silent_until(peer, other)}) + delay(),
           "its process ended");
  }
}

void Network::pause(Peer peer, Nanos span) {
  trace("is stopped", peer, peer);
  Nanos& until = endpoints_.at(peer).paused_until;
  until = std::max(until, timeline_.now() + span);  // it may be stopped already, for longer
}

void Network::when_running(Peer peer, std::function<void()> work) {
  const auto found = endpoints_.find(peer);
  if (found == endpoints_.end() || found->second.paused_until <= timeline_.now()) return work();
  timeline_.at(found->second.paused_until,
               [this, peer, work = std::move(work)]() mutable { when_running(peer, std::move(work)); });
}

Nanos Network::delay() {
  return conditions_.latency + Nanos(random_.below(static_cast<uint64_t>(conditions_.jitter.count()) + 1));
}

// ---- connections

void Network::dial(Peer from, const std::string& address) {
  const auto arrive = [this, from, address] {
    Endpoint* dialer = living(from);
    if (dialer == nullptr) return;
    const auto listener = listeners_.find(address);
    const Peer to = listener != listeners_.end() ? listener->second : base::kNobody;
    const bool silent = to != base::kNobody && std::max(silent_until(from, to), silent_until(to, from)) > timeline_.now();
    if (to == base::kNobody || silent || dialer->fenced.contains(to) || endpoints_.at(to).fenced.contains(from)) {
      dialer->events->on_dial_failed(address, base::error(MV_EUNREACHABLE, "nobody listens at {}", address));
      return dialer->touched();
    }
    connect(from, to, address);
  };
  timeline_.after(delay(), [this, from, arrive] { when_running(from, arrive); });
}

void Network::connect(Peer dialer, Peer listener, const std::string& dialed) {
  Connection& connection = connections_[pair(dialer, listener)];
  if (!connection.ended) return;
  connection.ended = false;
  connection.address[side(dialer, listener)] = dialed;
  connection.address[side(listener, dialer)] = endpoints_.at(dialer).address;
  schedule_up(dialer, listener, timeline_.now() + delay());
  schedule_up(listener, dialer, timeline_.now() + delay());
}

void Network::schedule_up(Peer self, Peer other, Nanos when) {
  Connection& connection = connections_[pair(self, other)];
  connection.up_at[side(self, other)] = when;
  timeline_.at(when, [this, self, other, life = connection.life] {
    when_running(self, [=, this] { come_up(self, other, life); });
  });
}

void Network::come_up(Peer self, Peer other, uint64_t life) {
  Connection& connection = connections_[pair(self, other)];
  Endpoint* here = living(self);
  if (here == nullptr || connection.life != life || connection.ended) return;
  connection.up[side(self, other)] = true;
  trace("is connected with", self, other);
  here->events->on_connected(other, connection.address[side(self, other)]);
  here->touched();
}

void Network::part(Peer a, Peer b, Nanos span, bool breaks) {
  Connection& connection = connections_[pair(a, b)];
  const Nanos end = timeline_.now() + span;
  connection.silent_until = std::max(connection.silent_until, end);
  if (conditions_.lossy || !breaks || connection.ended) return;
  trace("has lost its connection with", a, b);
  ++connection.life;
  connection.up[0] = connection.up[1] = false;
  for (Way& way : connection.way) way.departs = way.arrives = Nanos(0);
  schedule_up(a, b, connection.silent_until + delay());
  schedule_up(b, a, connection.silent_until + delay());
}

void Network::mute(Peer from, Peer to, Nanos span) {
  if (living(from) != nullptr && living(to) != nullptr) trace("is not heard by", from, to);
  Nanos& until = connections_[pair(from, to)].way[side(from, to)].silent_until;
  until = std::max(until, timeline_.now() + span);
}

Nanos Network::silent_until(Peer from, Peer to) {
  const Connection& connection = connections_[pair(from, to)];
  return std::max(connection.silent_until, connection.way[side(from, to)].silent_until);
}

void Network::close(Peer from, Peer peer) {
  trace("closes its connection with", from, peer);
  endpoints_.at(from).fenced.insert(peer);
  Connection& connection = connections_[pair(from, peer)];
  if (connection.ended) return;
  connection.ended = true;
  ++connection.life;
  lose(peer, from, std::max(timeline_.now(), silent_until(from, peer)) + delay(), "it closed the connection");
}

void Network::lose(Peer self, Peer other, Nanos when, const std::string& why) {
  const auto report = [this, self, other, why] {
    Endpoint* here = living(self);
    if (here == nullptr || !here->fenced.insert(other).second) return;
    trace("has lost", self, other);
    here->events->on_lost(other, base::error(MV_EPEERLOST, "{}: {}", endpoints_.at(other).address, why));
    here->touched();
  };
  timeline_.at(when, [this, self, report] { when_running(self, report); });
}

// ---- departures

void Network::send(Peer from, Peer to, const base::Frame& frame) {
  const auto prefix = wire::read_prefix(frame.head);
  if (!prefix.ok() ||
      !wire::read_header(std::span(frame.head).subspan(wire::kPrefixBytes, prefix.value().header_bytes)).ok())
    return timeline_.violated(name(from) + " sent a frame that is not sound");
  const auto flight = std::make_shared<Flight>(Flight{from, to, 0, frame.head, frame.tail, {}, nullptr});
  if (from == to) {
    Nanos& arrives = connections_[pair(from, to)].way[0].arrives;
    arrives = std::max(arrives, timeline_.now()) + Nanos(random_.between(1'000, 20'000));
    return at_arrival(flight, arrives, &Network::deliver);
  }
  const auto found = connections_.find(pair(from, to));
  if (found == connections_.end() || found->second.ended || !found->second.up[side(from, to)]) return;
  flight->life = found->second.life;
  conditions_.lossy ? launch_loosely(flight, found->second) : launch_in_order(flight, found->second);
}

void Network::launch_in_order(const FlightRef& flight, Connection& connection) {
  Way& way = connection.way[side(flight->from, flight->to)];
  const int64_t linger = flight->tail != nullptr ? 2'000'000 : 50'000;
  way.departs = std::max(way.departs, timeline_.now()) + Nanos(random_.between(0, linger));
  const Nanos arrives = std::max({way.arrives, std::max(way.departs, silent_until(flight->from, flight->to)) + delay(),
                                  connection.up_at[side(flight->to, flight->from)]});
  way.arrives = arrives + transfer_time(*flight);
  launch(flight, way.departs, arrives, way.arrives);
}

bool Network::is_dropped(Way& way, Nanos silent_until) {
  if (silent_until > timeline_.now()) return true;
  if (!random_.chance(conditions_.drop) || ++way.dropped > kMostDroppedInARow) {
    way.dropped = 0;
    return false;
  }
  return true;
}

void Network::launch_loosely(const FlightRef& flight, Connection& connection) {
  Way& way = connection.way[side(flight->from, flight->to)];
  const int copies = random_.chance(conditions_.duplicate) ? 2 : 1;
  for (int i = 0; i < copies; ++i) {
    if (is_dropped(way, silent_until(flight->from, flight->to))) continue;
    const auto copy = i == 0 ? flight : std::make_shared<Flight>(*flight);
    const Nanos departs = timeline_.now() + Nanos(random_.between(0, 200'000));
    Nanos arrives = departs + delay();
    if (random_.chance(conditions_.late)) arrives += Nanos(random_.between(0, 300'000'000));
    arrives = std::max(arrives, connection.up_at[side(flight->to, flight->from)]);
    way.arrives = std::max(way.arrives, arrives);
    launch(copy, departs, arrives, arrives + transfer_time(*copy));
  }
}

Nanos Network::transfer_time(const Flight& flight) {
  return flight.tail != nullptr && random_.chance(conditions_.staged) ? Nanos(random_.between(1'000, 3'000'000))
                                                                   : Nanos(0);
}

void Network::launch(const FlightRef& flight, Nanos departs, Nanos arrives, Nanos ends) {
  if (flight->tail != nullptr) {
    endpoints_.at(flight->from).leaving.insert(flight);
    timeline_.at(departs, [this, flight] { depart(flight); });
  }
  if (arrives == ends) return at_arrival(flight, arrives, &Network::deliver);
  const size_t bytes = flight->tail->size(), pieces = 1 + random_.below(3);
  at_arrival(flight, arrives, &Network::deliver_header);
  for (size_t i = 0; i < pieces; ++i) {
    const size_t size = i + 1 < pieces ? bytes / pieces : bytes - i * (bytes / pieces);
    timeline_.at(arrives + (ends - arrives) / pieces * i,
                 [this, flight, size] { when_running(flight->to, [=, this] { deliver_piece(flight, size); }); });
  }
  at_arrival(flight, ends, &Network::deliver_end);
}

std::shared_ptr<const std::vector<std::byte>> Network::copy_of(std::span<const std::byte> bytes) {
  auto copy = departed_.lock();
  if (copy == nullptr || copy->size() != bytes.size() || std::memcmp(copy->data(), bytes.data(), bytes.size()) != 0)
    copy = std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end());
  departed_ = copy;
  return copy;
}

/// From here on the sender may reuse its memory.
void Network::depart(const FlightRef& flight) {
  if (flight->tail == nullptr) return;
  flight->payload = copy_of(flight->tail->bytes());
  flight->tail.reset();
  endpoints_.at(flight->from).leaving.erase(flight);
}

// ---- arrivals

void Network::at_arrival(const FlightRef& flight, Nanos when, void (Network::*step)(const FlightRef&)) {
  timeline_.at(when, [this, flight, step] { when_running(flight->to, [=, this] { (this->*step)(flight); }); });
}

bool Network::arrives(const Flight& flight) {
  const Endpoint* to = living(flight.to);
  if (to == nullptr || flight.stopped) return false;
  if (flight.from == flight.to) return true;
  const Connection& connection = connections_.at(pair(flight.from, flight.to));
  return connection.life == flight.life && connection.up[side(flight.to, flight.from)] &&
         !to->fenced.contains(flight.from);
}

void Network::deliver(const FlightRef& flight) {
  if (!arrives(*flight)) return;
  trace("gets", *flight);
  Endpoint& to = endpoints_.at(flight->to);
  const auto body = flight->body();
  if (reinterpret_cast<uintptr_t>(body.data()) % 8 == 0) {
    to.events->on_message(flight->from, flight->message(), body);
  } else {  // a part of somebody's float array, sent to the node itself
    const auto sink = to.events->on_header(flight->from, flight->message(), body.size());
    if (!sink->discards()) std::memcpy(sink->memory().data(), body.data(), body.size());
    to.events->on_payload(flight->from, flight->message(), *sink);
  }
  to.touched();
}

void Network::deliver_header(const FlightRef& flight) {
  if (!arrives(*flight)) return;
  trace("is getting", *flight);
  const size_t bytes = flight->body().size();
  flight->sink = endpoints_.at(flight->to).events->on_header(flight->from, flight->message(), bytes);
  if (flight->sink == nullptr || (!flight->sink->discards() && flight->sink->memory().size() != bytes))
    timeline_.violated(name(flight->to) + " has no room for a payload");
}

void Network::deliver_piece(const FlightRef& flight, size_t bytes) {
  if (flight->sink == nullptr || !arrives(*flight)) return;
  const auto room = flight->sink->room(flight->received);
  if (!room.empty()) std::memcpy(room.data(), flight->body().data() + flight->received, bytes);
  flight->received += bytes;
}

void Network::deliver_end(const FlightRef& flight) {
  if (flight->sink == nullptr || !arrives(*flight)) return;
  trace("has got", *flight);
  Endpoint& to = endpoints_.at(flight->to);
  to.events->on_payload(flight->from, flight->message(), *flight->sink);
  flight->sink.reset();
  to.touched();
}

// ---- trace

void Network::trace(const char* what, const Flight& flight) {
  const wire::Message& message = flight.message();
  const uint64_t size = flight.body().size();
  timeline_.note(flight.from * 3 + flight.to);
  timeline_.note((static_cast<uint64_t>(message.body_type()) << 56) ^ (message.seq() << 28) ^ (message.done() << 14) ^
                 size);
  if (!verbose) return;
  const double ms = static_cast<double>(timeline_.now().count()) / 1e6;
  const auto* input = message.body_as_Replicate();
  const std::string part = input != nullptr      ? fmt::format(" {} of part {}", wire::EnumNameReplicaEvent(input->event()), input->part())
                           : message.part() != 0 ? fmt::format(" for part {}", message.part())
                                                 : "";
  fmt::print("{:11.4f}  {} {} {}{} from {}: seq {} done {} status {}, {} bytes\n", ms, name(flight.to), what, wire::EnumNameBody(message.body_type()), part,
             name(flight.from), message.seq(), message.done(), message.status(), size);
}

void Network::trace(const char* what, Peer a, Peer b) {
  timeline_.note(a * 5 + b);
  if (!verbose) return;
  const double ms = static_cast<double>(timeline_.now().count()) / 1e6;
  std::printf("%11.4f  %s %s %s\n", ms, name(a).c_str(), what, a == b ? "" : name(b).c_str());
}

}  // namespace mv::sim
