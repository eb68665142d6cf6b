#include "engine/cluster/cluster.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "wire/text.hpp"

namespace mv::cluster {

using namespace std::chrono_literals;

namespace {
/// A peer that sends no heartbeats for this long is worth a remark.
constexpr base::Nanos kSilent = std::chrono::seconds(2);
/// Bytes of the text of a wait.
constexpr size_t kLongestWait = 200;
}  // namespace

Cluster::Cluster(const base::Clock& clock, base::Link& link, rpc::Client& client, rpc::Server& server, Owner& owner, Self self)
    : clock_(clock),
      link_(link),
      client_(client),
      server_(server),
      owner_(owner),
      self_(std::move(self)),
      contacts_(clock),
      roster_(self_, standing_, contacts_),
      publisher_(clock, link, server, roster_, contacts_),
      held_requests_(server, roster_, standing_),
      barrier_(server, roster_.view()),
      keeping_(clock, link, roster_, standing_, contacts_, keeping_events()),
      decisions_(clock, roster_, standing_, keeping_, publisher_, barrier_, [this](const View& view) { take_held(view); }),
      election_(clock, roster_, standing_, keeping_, decisions_),
      calls_(client, roster_, standing_, election_),
      heartbeat_(clock, link, owner, roster_, contacts_, calls_, decisions_),
      disputes_(clock, link, roster_, contacts_, heartbeat_, keeping_),
      connector_(clock, link, roster_, contacts_),
      joining_(clock, link, client, roster_, standing_, contacts_, connector_,
               {[this](View view) { readiness_.adopt(std::move(view)); }, [this](const base::Status& why) { readiness_.fail(why); },
                [this](base::Peer peer, const base::Status& why) { on_lost(peer, why); }}),
      founding_(clock, server, roster_, standing_, keeping_, publisher_,
                {[this](View view) { readiness_.adopt(std::move(view)); }, [this](const base::Status& why) { readiness_.fail(why); }}),
      newcomers_(clock, client, server, owner, roster_, standing_, contacts_, founding_, barrier_, publisher_, decisions_, election_, heartbeat_),
      strangers_(clock, link, owner, roster_, standing_, contacts_, founding_, newcomers_, [this](base::Peer peer, const base::Status& why) { on_lost(peer, why); }),
      readiness_(link, owner, roster_, standing_, contacts_, publisher_, keeping_, calls_, heartbeat_, connector_, joining_, founding_, strangers_),
      relocation_(client, server, owner, roster_, contacts_, heartbeat_, publisher_, decisions_, [this](base::Peer to) { role_transfer_.give(to); }),
      departure_(link, client, roster_, standing_, contacts_, calls_),
      endings_(roster_, barrier_, publisher_, decisions_, election_, relocation_),
      role_transfer_(roster_, standing_, barrier_, publisher_, calls_, newcomers_, endings_, connector_),
      cut_off_(link, owner, contacts_, roster_, standing_, barrier_, held_requests_, keeping_, decisions_, election_, calls_, departure_,
               [this](base::Peer peer, const base::Status& why) { on_lost(peer, why); }) {
  if (self_.is_master) roster_.set_master(self_.peer);
}

Keeping::Events Cluster::keeping_events() {
  Keeping::Events events;
  events.decided = [this](const View& view) { take_decided(view); };
  events.read = [this](bool is_new) {
    if (is_new && !standing_.is_cut_off()) publisher_.tell_members(roster_.decided());  // its writer may not hear from the keeper any more, or not have told all
    if (roster_.is_master()) return decisions_.write_next();
    if (election_.awaits_master()) election_.stand();
  };
  events.cut_off = [this](const base::Status& why) { cut_off_.cut_off(why); };
  return events;
}

/// This view is decided, and names this node as the master.
void Cluster::take_held(const View& view) {
  take_view(view, view.workers_gone());
  newcomers_.settle_soon();
}

// ---- on the master

void Cluster::on_request(const rpc::Asked& asked, const wire::Message& request) {
  const bool is_for_any = request.body_type() == wire::Body::Join || (request.body_type() == wire::Body::Leave && !standing_.has_given_role());
  if (!is_for_any && standing_.has_given_role()) return;  // the new master is asked again
  if (!is_for_any && !roster_.is_master()) return held_requests_.keep(asked, request);
  switch (request.body_type()) {
    case wire::Body::Join:
      return newcomers_.join(asked, request);
    case wire::Body::Barrier:
      return barrier_.enter(asked, clock_.now());
    case wire::Body::Leave:
      server_.answer(asked, builder_.answer({}));
      return mark_finished(asked.client);
    case wire::Body::Copied:
      return relocation_.copied(asked, *request.body_as_Copied());
    case wire::Body::Drain:
      return relocation_.drain(asked);
    case wire::Body::Resize:
      return relocation_.resize(asked, request.body_as_Resize()->servers());
    case wire::Body::HandOver:
      return relocation_.hand_over(asked, *request.body_as_HandOver());
    default:
      return server_.fail(asked, base::error(MV_EPROTOCOL, "unknown request: {}", wire::EnumNameBody(request.body_type())));
  }
}

void Cluster::on_cancel(const rpc::Asked& asked) {
  if (barrier_.withdraw(asked, [&](base::Peer peer) { return doing(peer, owner_.known_waits()); })) return;
  if (newcomers_.withdraw(asked)) return;
  if (held_requests_.withdraw(asked)) return;
  founding_.withdraw(asked);
}

/// What a worker does that has not arrived at a barrier, as far as the master knows without asking it.
std::string Cluster::doing(base::Peer peer, const std::vector<Wait>& waits) const {
  const auto wait = std::ranges::find(waits, peer, &Wait::who);
  if (wait != waits.end()) return fmt::format("waits in {}", describe(*wait));
  const auto quiet = contacts_.silence(peer);
  if (quiet && *quiet >= kSilent) return fmt::format("has been silent for {:.1f} s", base::seconds(*quiet));
  if (const Contact* contact = contacts_.find(peer); contact != nullptr && !contact->waits.empty()) return "waits in " + contact->waits;
  return barrier_.has_given_up(peer) ? "has given up waiting in it" : "is alive and has not called it";
}

// ---- connections

void Cluster::start() {
  heartbeat_.start();
  joining_.start();
  founding_.start();
}

void Cluster::on_connected(base::Peer peer, const std::string& address) {
  contacts_.connected(peer, address);
  client_.on_connected(peer);
  joining_.connected(peer, address);
  if (peer == roster_.master()) roster_.set_meets_master(false);
  if (peer == roster_.master() && election_.awaits_master()) election_.end();
  if (roster_.view().epoch > 0) heartbeat_.ping(peer);
  readiness_.look_again();
}

void Cluster::on_dial_failed(const std::string& address, const base::Status& why) {
  if (standing_.phase() == Phase::kFailed) return;
  if (standing_.phase() != Phase::kReady) return joining_.dial_failed(address, why);
  // A late member is dialed until it is there. Other members report lost ones.
  const auto loss = connector_.dial_failed(address, why);
  if (!loss) return;
  link_.close(loss->peer);
  on_lost(loss->peer, loss->why);
}

void Cluster::await_goodbyes(std::function<void()> told) {
  standing_.set_drained();
  readiness_.look_again();  // it may have been told to leave before it was ready
  newcomers_.settle();
  departure_.await_goodbyes(std::move(told));
}

void Cluster::connect_with_all() {
  for (const Member& member : roster_.view().members) {
    if (!roster_.may_need(member)) continue;
    connector_.want(member.peer, Dialer::kSelf);
    departure_.leave_late(member.peer);
  }
}

// ---- heartbeat

void Cluster::on_ping(base::Peer from, const wire::Ping& ping) {
  Contact& contact = contacts_[from];
  contact.epoch = std::max(contact.epoch, ping.epoch());
  if (from == roster_.master()) roster_.set_master_is_undecided(ping.undecided());
  if (roster_.is_master()) contact.waits = wire::text_of(ping.waits()).substr(0, kLongestWait);
  if (roster_.is_master() && ping.epoch() >= roster_.master_since()) barrier_.follow(from, ping.barriers(), ping.losses());
  // Its newest view may be on its way. If it was lost, the member asks again.
  const bool lacks_view = ping.epoch() < roster_.view().epoch && ping.epoch() > 0 && roster_.view().find(from) != nullptr;
  if ((roster_.is_master() || standing_.has_given_role()) && !publisher_.is_due() && lacks_view) publisher_.tell_again(from, contact, ping.epoch());
  if (ping.asks() != 0 && (roster_.is_member(from) || from == roster_.master())) heartbeat_.ping(from, 0, ping.asks());
  contacts_.answered(contact, ping.answers());
  newcomers_.settle_soon();
  readiness_.look_again();
}

void Cluster::beat(base::Nanos now) {
  auto silent = heartbeat_.beat(now);
  const bool misses_members = std::ranges::any_of(silent, [this](const auto& silence) { return roster_.is_member(silence.peer); });
  // A master that hears from too few voters can decide nothing. If the others still hear from it, they can choose another master only after its end.
  const bool decides = roster_.is_master() && roster_.is_kept() && !standing_.is_cut_off() && !standing_.is_drained() && !roster_.decided().workers_gone();
  if (misses_members && decides && !keeping_.is_quorum(heartbeat_.heard())) {
    const auto longest = std::ranges::max(silent, {}, &Heartbeat::Silence::span).span;
    if (longest > self_.heartbeat_timeout + 4 * heartbeat_.interval())
      return cut_off_.cut_off(base::error(MV_EPEERLOST, "this process, the master, does not hear from most of the processes that decide about the members"));
    silent.clear();  // the others may be slow
  }
  for (const auto& [peer, span] : silent) {
    link_.close(peer);
    // Not for other losses: at Ctrl-C all processes end at once, and their last words are the launcher's.
    if (roster_.is_master() && roster_.view().find(peer) != nullptr)
      base::log_warn("{} is lost: nothing heard from it for {:.2g} s", roster_.view().name(peer), base::seconds(span));
    on_lost(peer, base::error(MV_EPEERLOST, "nothing heard from it for {:.2g} s", base::seconds(span)));
  }
  disputes_.report();
  strangers_.watch(now);
  founding_.tell_of_missing(now);
}

// ---- time

base::Nanos Cluster::next_deadline() const {
  return std::min({heartbeat_.next_deadline(), joining_.next_deadline(), newcomers_.next_deadline(), publisher_.next_deadline(), connector_.next_deadline(), keeping_deadline()});
}

void Cluster::tick() {
  const base::Nanos now = clock_.now();
  for (const std::string& address : connector_.due(now))
    if (!joining_.asks_again(address)) link_.dial(address);
  if (now >= joining_.next_deadline()) joining_.give_up(founding_.missing());
  if (now >= newcomers_.next_deadline()) newcomers_.settle();
  if (now >= publisher_.next_deadline()) publisher_.send_to_all();
  tick_keeping(now);
  if (now >= heartbeat_.next_deadline()) beat(now);
}

}  // namespace mv::cluster
