#include "engine/cluster/joining.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "engine/cluster/view_log.hpp"

namespace mv::cluster {

using namespace std::chrono_literals;

namespace {
/// How long a process waits beyond its own deadline for the master's list of the missing processes.
constexpr base::Nanos kLastWord = 2s;
}  // namespace

/// Receives the master's answer to Join.
class Joining::Answer final : public rpc::Pending {
 public:
  explicit Answer(Joining& joining) : joining_(joining) {}
  base::SinkRef place(const wire::Message&, size_t bytes) override {
    const std::shared_ptr<std::byte[]> memory(new std::byte[bytes]);
    return base::Sink::into({memory.get(), bytes}, memory);
  }
  void finish(const base::Status& status, const wire::Message* answer, std::span<const std::byte> payload) override {
    joining_.answered(status, answer, payload);
  }

 private:
  Joining& joining_;
};

Joining::Joining(const base::Clock& clock, base::Link& link, rpc::Client& client, Roster& roster, const Standing& standing, Contacts& contacts,
                 Connector& connector, Events events)
    : clock_(clock), link_(link), client_(client), roster_(roster), standing_(standing), contacts_(contacts), connector_(connector), events_(std::move(events)) {
  const std::string& all = roster_.self().master;
  for (size_t from = 0; from <= all.size();) {
    const size_t end = std::min(all.find(',', from), all.size());
    masters_.push_back(all.substr(from, end - from));
    from = end + 1;
  }
}

void Joining::start() {
  give_up_ = base::after(clock_.now(), roster_.self().init_timeout);
  if (!roster_.self().is_master) dial();
}

void Joining::ask_at(const std::string& address) {
  if (standing_.phase() != Phase::kJoining || roster_.self().is_master || address == this->address()) return;
  base::log_info("the master is at {} now: asking it", address);
  const base::Status moved = base::error(MV_EPEERLOST, "the master is at {} now", address);
  const size_t next = index_of(address);
  if (const base::Peer former = roster_.master(); former != base::kNobody) {
    link_.close(former);
    events_.moved(former, moved);
  }
  connector_.stop();
  asked_ = next;
  dial();
}

size_t Joining::index_of(const std::string& address) {
  const auto known = std::ranges::find(masters_, address);
  const size_t index = static_cast<size_t>(known - masters_.begin());
  if (known == masters_.end()) masters_.push_back(address);
  return index;
}

void Joining::connected(base::Peer peer, const std::string& address) {
  if (roster_.is_master() || standing_.phase() != Phase::kJoining || roster_.master() != base::kNobody || address != this->address()) return;
  roster_.set_master(peer);
  ask();
}

void Joining::ask() {
  const Self& self = roster_.self();
  auto& fbb = builder_.fbb();
  const auto mode = !self.sync_said ? wire::Mode::Unsaid : self.sync ? wire::Mode::Sync : wire::Mode::Async;
  const auto join = wire::CreateJoinDirect(fbb, self.nodes, static_cast<int32_t>(self.rank), static_cast<uint8_t>(self.role), mode, self.address.c_str(),
                                           self.host.c_str(), self.pid, self.replicas);
  answer_ = std::make_shared<Answer>(*this);
  client_.call(roster_.master(), {builder_.finish(wire::Body::Join, join), answer_, true, 0, nullptr});
}

void Joining::ask_next() { asked_ = (asked_ + 1) % masters_.size(); }

/// The peer behind this address with which this node is connected; kNobody: there is none.
base::Peer Joining::connected_at(const std::string& address) {
  for (const auto& [peer, contact] : contacts_)
    if (contact.connected && contact.address == address) return peer;
  return base::kNobody;
}

bool Joining::asks_again(const std::string& address) {
  const base::Peer met = connected_at(address);
  if (standing_.phase() != Phase::kJoining || roster_.master() != base::kNobody || met == base::kNobody) return false;
  roster_.set_master(met);
  ask();
  return true;
}

void Joining::dial_failed(const std::string& address, const base::Status& why) {
  if (why.code() != MV_EUNREACHABLE) return events_.failed(why);
  const bool is_joining = standing_.phase() == Phase::kJoining;
  last_dial_ = why;
  if (is_joining && address == this->address()) ask_next();
  connector_.dial_later(is_joining ? this->address() : address);
}

void Joining::answered(const base::Status& status, const wire::Message* answer, std::span<const std::byte> payload) {
  answer_.reset();
  if (standing_.phase() != Phase::kJoining) return;
  // Another process may know the successor of the one that is gone, or the keeper will (see ask_at()); and a process that is still joining will learn of the master.
  const bool has_successor = masters_.size() > 1 || (roster_.self().replicas > 0 && roster_.self().asks_keeper);
  if ((status.code() == MV_EPEERLOST && has_successor) || status.code() == MV_EUNREACHABLE) {
    last_dial_ = status;
    roster_.set_master(base::kNobody);
    ask_next();
    return connector_.dial_later(address());
  }
  if (!status.ok()) return events_.failed(status);
  const auto* view = answer != nullptr ? answer->body_as_View() : nullptr;
  if (view == nullptr) return events_.failed(base::error(MV_EPROTOCOL, "{} did not answer like a master", roster_.self().master));
  auto update = read_update(*view, payload);
  if (!update.ok()) return events_.failed(update.status());
  View answered = std::move(update.value().view);
  if (const Member* const master = answered.find(answered.master); master != nullptr && answered.find(roster_.self().peer) == nullptr) {
    base::log_info("{} is the master of this cluster now: asking it", answered.name(master->peer));  // it can't be the one that was asked
    asked_ = index_of(master->address);
    roster_.set_master(base::kNobody);
    return connected_at(master->address) != base::kNobody ? connector_.dial_later(master->address) : dial();
  }
  events_.joined(std::move(answered));
}

void Joining::give_up(const std::string& missing) {
  const Self& self = roster_.self();
  const bool is_joining = standing_.phase() == Phase::kJoining;
  if (answer_ != nullptr && is_joining) {  // the answer to the cancel lists the missing processes
    client_.cancel(roster_.master(), answer_.get());
    answer_.reset();
    give_up_ = clock_.now() + kLastWord;
  } else if (self.is_master && is_joining) {
    events_.failed(base::error(MV_ETIMEOUT, "{} within {:.3g} s", missing, base::seconds(self.init_timeout)));
  } else if (last_dial_.ok()) {
    events_.failed(base::error(MV_ETIMEOUT, "the cluster did not form within {:.3g} s", base::seconds(self.init_timeout)));
  } else {
    events_.failed(base::error(MV_EUNREACHABLE, "{}; tried for {:.3g} s. Is rank 0 running there?", last_dial_.text(), base::seconds(self.init_timeout)));
  }
}

}  // namespace mv::cluster
