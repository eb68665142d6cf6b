#include "transport/inproc/inproc.hpp"

#include <cstring>
#include <optional>

#include "base/log.hpp"
#include "wire/frame.hpp"

namespace mv::transport {

namespace {

constexpr std::string_view kScheme = "inproc:";

std::optional<std::string> name_of(const std::string& address) {
  if (!address.starts_with(kScheme) || address.size() == kScheme.size()) return std::nullopt;
  return address.substr(kScheme.size());
}

bool is_aligned(const std::byte* data) { return reinterpret_cast<uintptr_t>(data) % 8 == 0; }

}  // namespace

// ------------------------------------------------------------ the hub

InprocHub& InprocHub::process() {
  static auto* const kHub = new InprocHub;  // never destroyed: nodes may end during the destruction of static objects
  return *kHub;
}

void InprocHub::after_fork_in_child() noexcept {
  endpoints_.clear();  // takes no endpoint's lock, which another thread of the parent may have held
  mutex_.unlock();
}

bool InprocHub::add(const std::string& name, std::shared_ptr<Endpoint> endpoint) {
  std::lock_guard lock(mutex_);
  return endpoints_.emplace(name, std::move(endpoint)).second;
}

void InprocHub::remove(const std::string& name) {
  std::lock_guard lock(mutex_);
  endpoints_.erase(name);
}

std::shared_ptr<InprocHub::Endpoint> InprocHub::find(const std::string& name) {
  std::lock_guard lock(mutex_);
  const auto found = endpoints_.find(name);
  return found == endpoints_.end() ? nullptr : found->second;
}

// ------------------------------------------------------------ connecting

InprocTransport::InprocTransport(Loop& loop, base::Peer self, InprocHub& hub)
    : hub_(hub), self_(self), endpoint_(std::make_shared<Endpoint>(loop, *this, self)) {}

InprocTransport::~InprocTransport() {
  leave();
  endpoint_->shut();
}

base::Result<std::string> InprocTransport::listen(const std::string& address) {
  const auto name = name_of(address);
  if (!name)
    return base::error(MV_EINVAL, "\"{}\" is not an address within a process; expected \"inproc:name\"", address);
  if (!hub_.add(*name, endpoint_))
    return base::error(MV_EADDRINUSE, "another node of this process is already called \"{}\"", address);
  names_.push_back(*name);
  return address;
}

base::Result<std::string> InprocTransport::adopt(int) {
  return base::error(MV_ENOSYS, "the inproc transport does not accept sockets");
}

void InprocTransport::dial(const std::string& address) {
  const auto name = name_of(address);
  const EndpointRef endpoint = name ? hub_.find(*name) : nullptr;
  const std::string own = names_.empty() ? std::string(kScheme) : std::string(kScheme) + names_.front();
  if (endpoint && endpoint->post(endpoint, [me = endpoint_, own, address](InprocTransport& there) { there.take_dial(me, own, address); }))
    return;
  endpoint_->post(endpoint_, [address](InprocTransport& here) {
    if (!here.stopping_)
      here.events_->on_dial_failed(address,
                                   base::error(MV_EUNREACHABLE, "no node of this process is called \"{}\"", address));
  });
}

void InprocTransport::take_dial(const EndpointRef& from, const std::string& from_address, const std::string& dialed) {
  const bool accepted = !stopping_ && !gone_.contains(from->who);
  from->post(from, [me = endpoint_, dialed, accepted](InprocTransport& there) { there.take_answer(me, dialed, accepted); });
  if (accepted && from->who != self_ && connect(from, from_address)) events_->on_connected(from->who, from_address);
}

void InprocTransport::take_answer(const EndpointRef& from, const std::string& dialed, bool accepted) {
  if (stopping_) return;
  if (!accepted || gone_.contains(from->who)) {
    if (accepted) from->post(from, [who = self_](InprocTransport& there) { there.take_end(who, "closed the connection"); });
    return events_->on_dial_failed(dialed, base::error(MV_EPEERLOST, "{} and this node have disconnected permanently", dialed));
  }
  connect(from, dialed);
  events_->on_connected(from->who, dialed);
}

/// True if the peer is new.
bool InprocTransport::connect(const EndpointRef& endpoint, const std::string& address) {
  return peers_.try_emplace(endpoint->who, Known{endpoint, address}).second;
}

// ------------------------------------------------------------ traffic

void InprocTransport::send(base::Peer to, const base::Frame& frame) {
  if (stopping_) return;
  if (to == self_) {
    if (gone_.contains(self_)) return;
    endpoint_->post(endpoint_, [frame](InprocTransport& here) { here.take_frame(here.self_, frame); });
    return;
  }
  const auto known = peers_.find(to);
  if (known == peers_.end()) return;
  base::Frame own{frame.head, frame.tail ? base::Payload::copy(frame.tail->bytes()) : nullptr};
  known->second.endpoint->post(known->second.endpoint,
                            [from = self_, own = std::move(own)](InprocTransport& there) { there.take_frame(from, own); });
}

void InprocTransport::take_frame(base::Peer from, const base::Frame& frame) {
  if (stopping_ || gone_.contains(from) || (from != self_ && !peers_.contains(from))) return;
  const std::span<const std::byte> head(frame.head);
  const auto prefix = wire::read_prefix(head);
  if (!prefix.ok()) return;  // a bug in an engine: TCP's receiver would report it
  const auto& [header_bytes, payload_bytes] = prefix.value();
  events_->on_arrived(from, prefix.value().frame_bytes());
  const auto& message = *flatbuffers::GetRoot<wire::Message>(head.data() + wire::kPrefixBytes);
  if (!frame.tail) {
    return events_->on_message(from, message,
                               head.subspan(wire::kPrefixBytes + wire::padded(header_bytes), payload_bytes));
  }
  const std::span<const std::byte> payload = frame.tail->bytes();
  if (is_aligned(payload.data())) return events_->on_message(from, message, payload);
  const base::SinkRef sink = events_->on_header(from, message, payload.size());
  if (!sink->discards()) std::memcpy(sink->memory().data(), frame.tail->bytes().data(), payload.size());
  events_->on_payload(from, message, *sink);
}

// ------------------------------------------------------------ ends

void InprocTransport::part(base::Peer peer, const char* how) {
  const auto known = peers_.find(peer);
  if (known == peers_.end()) return;
  const EndpointRef endpoint = std::move(known->second.endpoint);
  peers_.erase(known);
  endpoint->post(endpoint, [from = self_, how](InprocTransport& there) { there.take_end(from, how); });
}

void InprocTransport::take_end(base::Peer from, const std::string& how) {
  const auto known = peers_.find(from);
  if (known == peers_.end()) return;
  const std::string address = known->second.address;
  peers_.erase(known);
  gone_.add(from);
  if (!stopping_) events_->on_lost(from, base::error(MV_EPEERLOST, "{} {}", address, how));
}

void InprocTransport::close(base::Peer peer) {
  gone_.add(peer);
  part(peer, "closed the connection");
}

void InprocTransport::cut(base::Peer peer) {
  const auto known = peers_.find(peer);
  if (known == peers_.end()) return;
  const std::string address = known->second.address;
  part(peer, "was cut off");
  gone_.add(peer);
  endpoint_->post(endpoint_, [peer, address](InprocTransport& here) {
    if (!here.stopping_) here.events_->on_lost(peer, base::error(MV_EPEERLOST, "{} was cut off", address));
  });
}

void InprocTransport::leave() {
  for (const std::string& name : names_) hub_.remove(name);
  names_.clear();
  while (!peers_.empty()) part(peers_.begin()->first, "closed the connection");
}

void InprocTransport::stop(std::function<void()> stopped) {
  stopping_ = true;
  leave();
  endpoint_->post(endpoint_, [stopped = std::move(stopped)](InprocTransport&) { stopped(); });
}

}  // namespace mv::transport
