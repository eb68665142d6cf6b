#include "engine/replica/parts.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/log.hpp"

namespace mv::replica {

using namespace std::chrono_literals;

namespace {
/// The time between two comparisons of a piece of the tables, of 1 MiB.
constexpr base::Nanos kCompareEvery = 1s;
/// Inputs that are processed at a stretch when the copy has arrived.
constexpr size_t kAtAStretch = 64;

/// After this, an input that the successor has refused is sent again.
constexpr base::Nanos kRepeatRefused = 100ms;

/// How long a worker waits for the others' parts of a round before its own part goes to the back-up without them, and is acknowledged.
constexpr base::Nanos kLongestWithheld = 2ms;

bool is_request(wire::ReplicaEvent event) {
  return event == wire::ReplicaEvent::Asked || event == wire::ReplicaEvent::Granted || event == wire::ReplicaEvent::Canceled;
}

}  // namespace

Parts::Parts(const base::Clock& clock, base::Link& link, cluster::Cluster& cluster, rpc::Client& peers, rpc::Server& streams, base::Pool& pool,
             rpc::ClientOptions options)
    : clock_(clock),
      link_(link),
      cluster_(cluster),
      peers_(peers),
      streams_(streams),
      pool_(pool),
      replicas_(cluster.self().replicas),
      by_part_(replicas_ > 0 || cluster.self().nodes > 1),
      client_(clock, link, options),
      own_(link, pool) {}

void Parts::start(const cluster::View& view, table::Server& own) {
  const cluster::Member& self = *view.find(cluster_.self().peer);
  own_tables_ = &own;
  if (!is_by_part()) return own.start(view, self.peer);
  if (is_replicated()) compare_at_ = clock_.now() + kCompareEvery;
  for (const cluster::Member* server : view.servers()) {
    streams_of_[server->rank + 1] = server->peer;
    follow(*server);
    const uint32_t number = server->rank + 1;
    const auto chain = view.chain_of(*server);
    if (view.serving(*server) == self.peer) {
      if (server->peer == self.peer) {
        own_.start(view, self, own, is_replicated());
        own_.set_has_all(!is_replicated());
        lead(number, own_, own);
      } else {  // that of a vacant place
        const auto& added = copies_.emplace(number, std::make_unique<Copy>(clock_, link_, pool_)).first->second;
        added->part.start(view, *server, added->tables, is_replicated());
        added->part.set_has_all(!is_replicated());
        lead(number, added->part, added->tables);
      }
    } else if (std::ranges::find(chain, self.peer) != chain.end()) {
      auto copy = std::make_unique<Copy>(clock_, link_, pool_);
      copy->part.start(view, *server, copy->tables);
      copy->part.set_has_all(!is_replicated());
      copies_.emplace(number, std::move(copy));
    } else {
      continue;
    }
    const auto place = std::ranges::find(chain, self.peer);
    if (place != chain.begin()) cluster_.want(*(place - 1));
    if (place + 1 == chain.end()) continue;
    cluster_.want(*(place + 1));
    in_chain(number).successor.begin(*(place + 1));
    if (const auto led = led_.find(number); led != led_.end()) pass_on(number, led->second);
  }
  for (auto& [number, led] : led_) see_to_journal(number, led);
  if (led_.empty()) own.start(view, self.peer);  // no server, or one that has taken the place of a lost one
}

// ---- which part, and which process serves it

Part* Parts::find_led(uint32_t number) {
  const auto led = led_.find(number);
  return led != led_.end() ? led->second.part : nullptr;
}

const cluster::Member* Parts::server_of(uint32_t number) const {
  const cluster::Member* const server = number != 0 ? cluster_.view().at(number - 1) : nullptr;
  return server != nullptr && server->is_server() ? server : nullptr;
}

bool Parts::serves(base::Peer peer, uint32_t number) const {
  const cluster::Member* const server = server_of(number);
  return server != nullptr && cluster_.view().serving(*server) == peer;
}

template <typename Visit>
void Parts::for_each_led(Visit visit) {
  for (auto& [number, led] : led_) visit(*led.part);
}

const table::Server* Parts::tables_of(base::Peer server) const {
  if (!is_by_part()) return server == cluster_.self().peer ? own_tables_ : nullptr;
  const cluster::Member* const self = cluster_.view().find(cluster_.self().peer);
  if (self != nullptr && self->peer == server && led_.contains(self->rank + 1) && led_.at(self->rank + 1).part == &own_) return own_tables_;
  for (const auto& [number, copy] : copies_)
    if (const auto* member = server_of(number); member != nullptr && member->peer == server && copy->arrival == nullptr) return &copy->tables;
  return nullptr;
}

std::vector<const table::Server*> Parts::served() const {
  std::vector<const table::Server*> served;
  if (own_tables_ != nullptr && !own_.is_sealed()) served.push_back(own_tables_);
  for (const auto& [number, copy] : copies_)
    if (copy->part.leads() && !copy->part.is_sealed()) served.push_back(&copy->tables);
  return served;
}

std::vector<const rpc::Server*> Parts::served_streams() const {
  std::vector<const rpc::Server*> streams{&streams_};
  if (is_by_part()) streams.push_back(&own_.streams());
  for (const auto& [number, copy] : copies_)
    if (copy->part.leads()) streams.push_back(&copy->part.streams());
  return streams;
}

size_t Parts::differing() const {
  size_t differing = 0;
  for (const auto& [number, copy] : copies_) differing += copy->part.differing();
  return differing;
}

// ---- messages

void Parts::on_answer(base::Peer from, const wire::Message& message, std::span<const std::byte> payload) {
  if (is_by_part() && serves(from, message.part())) client_.on_answer(streams_of_.at(message.part()), message, payload);
}

base::SinkRef Parts::on_answer_header(base::Peer from, const wire::Message& message, size_t bytes) {
  if (!is_by_part() || !serves(from, message.part())) return std::make_shared<base::Sink>(std::span<std::byte>(), unserved_);
  return client_.on_answer_header(streams_of_.at(message.part()), message, bytes);
}

void Parts::on_request(base::Peer from, const wire::Message& message, std::span<const std::byte> payload, const base::SinkRef& staged) {
  // A request for a part that is not served here came before the view that says so. It is asked for later: see take_over().
  if (Part* const part = find_led(message.part())) part->on_message(from, message, payload, staged);
}

base::SinkRef Parts::on_request_header(base::Peer from, const wire::Message& message, size_t bytes) {
  Part* const part = find_led(message.part());
  return part != nullptr && !part->is_sealed() ? part->streams().on_header(from, message, bytes) : base::Sink::nowhere();
}

void Parts::worker_finished(base::Peer worker) {
  for_each_led([&](Part& part) { part.worker_finished(worker); });
}

void Parts::worker_lost(base::Peer worker, const base::Status& why) {
  for_each_led([&](Part& part) { part.worker_lost(worker, why); });
}

void Parts::worker_joined(const cluster::Member& worker) {
  for_each_led([&](Part& part) {
    part.worker_joined(worker);
    part.streams().ask_again(worker.peer);  // its first requests may have come before the view with it
  });
}

void Parts::ask_again(base::Peer worker) {
  for_each_led([&](Part& part) { part.streams().ask_again(worker); });
}

// ---- the primary

void Parts::lead(uint32_t number, Part& part, table::Server& tables) {
  part.lead();
  given_.erase(number);
  tables.set_has_copy(is_replicated());
  InChain& chain = in_chain(number);
  led_.emplace(number, Led{&part, &tables, chain, std::make_unique<PrimaryJournal>(clock_, number, part.outbox(), chain.successor)});
}

/// The part's inputs go along the chain from now on.
void Parts::pass_on(uint32_t number, Led& led, size_t unacknowledged) {
  led.tables->set_has_copy(true);
  led.part->pass_on([this, number, &led](const Part::Input& input) { send_to_backup(number, led, input); }, unacknowledged);
}

/// The payload of a message that is passed on.
base::PayloadRef Parts::kept(std::span<const std::byte> payload, const std::shared_ptr<const void>& staged) {
  if (payload.empty()) return nullptr;
  if (staged != nullptr) return base::Payload::kept(payload, staged);
  const base::Pool::Block copy = pool_.take(payload.size());
  std::memcpy(copy.bytes.data(), payload.data(), payload.size());
  return base::Payload::kept(copy.bytes, copy.memory);
}

void Parts::send_to_backup(uint32_t number, const Led& led, const Part::Input& input) {
  const auto body = write_input(builder_.fbb(), number, input);
  base::Frame frame = builder_.finish(wire::Body::Replicate, body, kept(input.payload, input.staged));
  // With a task for the chain, another back-up may come, which does not read the journal.
  led.journal->pass(input.number, std::move(frame), input.event != wire::ReplicaEvent::Copy, is_request(input.event));
}

// ---- the chain

Parts::InChain& Parts::in_chain(uint32_t number) {
  return chains_.try_emplace(number, peers_, is_replicated(), [this, number] { acknowledged(number, chains_.at(number)); }).first->second;
}

/// All successors have the next input.
void Parts::acknowledged(uint32_t number, InChain& chain) {
  if (const auto led = led_.find(number); led != led_.end()) {
    led->second.journal->acknowledged(led->second.part->inputs() - chain.successor.unacknowledged());
    led->second.part->outbox().input_acknowledged();
  } else if (const auto copy = copies_.find(number); copy != copies_.end()) {
    answer(chain, copy->second->part);
  }
}

/// Answers the predecessor's inputs that all successors have.
void Parts::answer(InChain& chain, const Part& part) {
  const uint64_t acknowledged = part.inputs() - chain.successor.unacknowledged();
  for (; !chain.unanswered.empty() && chain.unanswered.front().first <= acknowledged; chain.unanswered.pop_front())
    streams_.finish(chain.unanswered.front().second);
}

/// No process can decide any more which one replaces a lost successor. The predecessor must not wait: its other requests would have no room.
void Parts::refuse_unanswered(InChain& chain) {
  const base::Peer successor = chain.successor.peer();
  if (successor == base::kNobody || cluster_.contacts().is_connected(successor)) return;
  for (const auto& [number, asked] : std::exchange(chain.unanswered, {})) streams_.fail(asked, cluster_.why_cut_off());
}

/// Whether `peer` may pass inputs of the part to this node, because it precedes this node in the chain. It may have learned before this node
/// that the processes between them are lost.
bool Parts::is_predecessor(base::Peer peer, uint32_t number) const {
  const cluster::Member* const server = server_of(number);
  if (server == nullptr) return false;
  auto chain = cluster_.view().chain_of(*server);
  chain.push_back(cluster_.view().next_backup_of(*server));
  const auto self = std::ranges::find(chain, cluster_.self().peer);
  return self != chain.end() && std::find(chain.begin(), self, peer) != self;
}

/// Carries out the master's decision about the process that follows this one.
void Parts::see_to_successor(uint32_t number, InChain& chain, const cluster::Member& part) {
  const cluster::View& view = cluster_.view();
  if (chain.transfer != nullptr && view.epoch < chain.epoch) return;  // the server knows a later view, in which this process is the last one
  const auto all = view.chain_of(part);
  const auto self = std::ranges::find(all, cluster_.self().peer);
  const base::Peer follows = self != all.end() && self + 1 != all.end() ? *(self + 1) : base::kNobody, present = chain.successor.peer();
  if (follows == present) {
    if (chain.successor.has_refused()) chain.successor.replace(present);
    if (follows == base::kNobody || chain.transfer == nullptr) return;
    base::log_info("the tables of {} have {}: {}", view.name(part.peer), is_replicated() ? "a back-up again" : "a copy", view.name(follows));
    return chain.transfer.reset();
  }
  if (present == base::kNobody) return;  // this process gets a copy itself, or has none any more
  if (chain.transfer != nullptr && view.next_backup_of(part) == present) return;
  if (is_replicated() && view.serving(part) != present)
    base::log_warn("the tables of {} have {}: {} has left or is lost", view.name(part.peer),
                   part.backups.empty() ? "no back-up any more" : "one back-up less", view.name(present));
  if (follows == base::kNobody) return without_successor(number, chain);
  cluster_.want(follows, cluster::Cluster::Dialer::kSelf);
  chain.successor.replace(follows);
}

/// The successor may have known an older view, in which this process was not before it.
void Parts::repeat_refused(base::Nanos now) {
  for (auto& [number, chain] : chains_) {
    const bool waits = chain.successor.has_refused() && chain.transfer == nullptr, is_due = chain.repeat_at <= now;
    if (waits && is_due) chain.successor.replace(chain.successor.peer());
    if (!waits || is_due) chain.repeat_at = base::kNever;
    else if (chain.repeat_at == base::kNever) chain.repeat_at = now + kRepeatRefused;
  }
}

void Parts::without_successor(uint32_t number, InChain& chain) {
  chain.transfer.reset();
  chain.successor.end();
  const auto found = led_.find(number);
  if (found == led_.end()) return;
  Led& led = found->second;
  led.journal->drop();
  led.part->lead_alone();
  led.tables->set_has_copy(is_replicated());
  if (led.content == Led::Content::kNew) set_content(led, Led::Content::kUsual);
  led.moment.reset();
  led.refill.reset();
  if (led.replaced) std::exchange(led.replaced, nullptr)();  // nobody has the old content any more
}

// ---- a copy for the next back-up

void Parts::drop_offer(Led& led) {
  led.offer.reset();
  led.from = led.to = base::kNobody;
}

/// Carries out the master's decision about the next back-up of a part that this node serves.
void Parts::see_to_copy(uint32_t number, Led& led, const cluster::Member& part) {
  const cluster::View& view = cluster_.view();
  const base::Peer next = view.next_backup_of(part), tail = view.tail_of(part);
  InChain& chain = led.chain;
  if (chain.to != next || chain.from != tail) {
    chain.from = chain.to = base::kNobody;
    chain.is_inherited = false;
  }
  if (led.to != next || led.from != tail) drop_offer(led);
  // A sealed part may have another server soon, whose copy has no inputs that come now.
  if (next != base::kNobody && led.to == base::kNobody && chain.to == base::kNobody && clock_.now() >= led.retry_at && !led.part->is_sealed()) {
    led.to = next;
    led.from = tail;
    led.offer = std::make_shared<Offer>(clock_, peers_, *led.part, [this, number, &led] { return begin_copy(number, led); });
    cluster_.want(next, cluster::Cluster::Dialer::kSelf);
    led.offer->ask({number, next, tail, view.epoch}, cluster_.self().peer);
  }
  if (led.content == Led::Content::kNew && led.moment == nullptr && led.refill == nullptr) refill(number, led);
}

/// The part can be copied now: begins the offered copy. False if it can't begin yet.
bool Parts::begin_copy(uint32_t number, Led& led) {
  const base::Peer from = led.from, to = led.to;
  const uint64_t epoch = cluster_.view().epoch;
  if (from == cluster_.self().peer) {
    if (!begin_transfer(number, led.chain, *led.part, to)) return false;
    if (led.retry_at > clock_.now()) return true;  // it has failed already
  } else {
    led.part->tell({.event = wire::ReplicaEvent::Copy, .client = from, .epoch = epoch, .to = to});
  }
  std::tie(led.chain.from, led.chain.to, led.chain.epoch) = std::tie(from, to, epoch);
  see_to_journal(number, led);
  return true;
}

/// On the last process in the chain: begins the transfer, and passes inputs to the receiver from now on. False if it can't begin now.
bool Parts::begin_transfer(uint32_t number, InChain& chain, Part& part, base::Peer to) {
  Transfer::Events events;
  events.passes_on = [this, number, &chain, to] {
    chain.successor.begin(to);
    if (const auto led = led_.find(number); led != led_.end()) pass_on(number, led->second);
  };
  events.is_equal = [this, number, to] { tell_master(number, to); };
  events.failed = [this, number, &chain] { copy_failed(number, chain); };
  cluster_.want(to, cluster::Cluster::Dialer::kSelf);
  const auto transfer = std::make_shared<Transfer>(peers_, part, number, to, std::move(events));
  chain.transfer = transfer;
  if (transfer->start()) return true;
  chain.transfer.reset();
  return false;
}

/// The server of the part says that the last process in the chain gives the next back-up its copy now.
void Parts::copy_asked(uint32_t number, InChain& chain, Part& part, const wire::Replicate& input) {
  const cluster::View& view = cluster_.view();
  if (view.epoch >= input.epoch() && view.next_backup_of(*server_of(number)) != input.to()) return;  // it is lost meanwhile, as the server will learn
  chain.from = input.client();
  chain.to = input.to();
  chain.epoch = input.epoch();
  if (chain.from != cluster_.self().peer) return;
  if (chain.successor.peer() != base::kNobody) without_successor(number, chain);  // it is lost: the server knows that already
  if (!part.is_idle() || !begin_transfer(number, chain, part, chain.to)) copy_failed(number, chain);
}

/// The next back-up refuses the copy, or this process has no memory for it.
void Parts::copy_failed(uint32_t number, InChain& chain) {
  const base::Peer to = chain.to;
  without_successor(number, chain);
  chain.from = chain.to = base::kNobody;
  if (const auto led = led_.find(number); led != led_.end()) {
    drop_offer(led->second);
    led->second.retry_at = clock_.now() + kRetryAfter;
    return;
  }
  const base::Peer server = cluster_.view().serving(*server_of(number));
  refuse_copy(number, server, to);
  if (chain.led_by != server) refuse_copy(number, chain.led_by, to);
}

/// @param to  kNobody: this process, the last one in the chain, gives nobody a copy
void Parts::refuse_copy(uint32_t number, base::Peer server, base::Peer to) {
  base::Frame frame = builder_.finish(wire::Body::Replicate, wire::CreateReplicate(builder_.fbb(), number, wire::ReplicaEvent::Refused, 0, 0, 0, 0, 0, 0, 0, nullptr, nullptr, 0, 0, 0, to));
  if (server != base::kNobody) peers_.call(server, {std::move(frame), std::make_shared<rpc::Ignored>(), false, 0, nullptr});
}

void Parts::copy_refused(base::Peer by, const wire::Replicate& note) {
  const auto found = led_.find(note.part());
  if (found == led_.end() || found->second.chain.from != by) return;
  Led& led = found->second;
  if (note.to() != base::kNobody ? led.chain.to != note.to() : !led.chain.is_inherited) return;
  led.chain.from = led.chain.to = base::kNobody;
  led.chain.is_inherited = false;
  led.part->tell({.event = wire::ReplicaEvent::Refused});
  drop_offer(led);
  led.retry_at = clock_.now() + kRetryAfter;
}

void Parts::tell_master(uint32_t number, base::Peer backup) {
  base::Frame frame = builder_.finish(wire::Body::Copied, wire::CreateCopied(builder_.fbb(), number, backup));
  peers_.call(cluster_.master(), {std::move(frame), std::make_shared<rpc::Ignored>(), true, 0, nullptr});
}

// ---- servers

void Parts::on_connected(base::Peer peer) {
  if (!is_by_part()) return;
  for (const auto& [number, stream] : streams_of_)
    if (serves(peer, number) && !client_.is_lost(stream)) client_.on_connected(stream);
}

void Parts::server_missed(const cluster::Member& server, const base::Status& why) {
  if (!is_by_part() || server.is_out) return;
  // The memory of a process that has ended holds nothing. Until the master decides which process follows it, nothing is acknowledged.
  for (auto& [number, led] : led_)
    if (led.chain.successor.peer() == server.peer) led.journal->drop();
  if (server.peer == cluster_.master() && !cluster_.awaits_master()) return give_up(server.peer, why);  // nobody can name a stand-in
  // It may have handed its tables over and left, which this node learns from the master, like the loss.
  if (!is_replicated() && !server.departs() && (server.state == cluster::MemberState::kFinished || cluster_.has_lost_master())) return give_up(server.peer, why);
  missed_[server.peer] = clock_.now() + cluster_.self().heartbeat_timeout;
}

void Parts::give_up(base::Peer server, const base::Status& why) {
  for (const auto& [number, stream] : streams_of_)
    if (serves(server, number)) client_.on_lost(stream, why);
  // Nothing can be acknowledged any more of parts whose back-up it is.
  for (const auto& [number, led] : led_)
    if (led.chain.successor.peer() == server)
      client_.on_lost(streams_of_.at(number),
                      base::error(MV_EPEERLOST, "this process is cut off from the back-up of its tables, {}", cluster_.view().name(server)));
  // No process needs the tables any more, and the workers that leave wait for answers.
  if (cluster_.all_workers_gone())
    for (auto& [number, chain] : chains_)
      if (chain.successor.peer() == server) without_successor(number, chain);
  give_up_undecided();
}

void Parts::tell_new_master() {
  for (const auto& [number, chain] : chains_)
    if (chain.transfer != nullptr && chain.transfer->is_confirmed() && cluster_.view().next_backup_of(*server_of(number)) == chain.successor.peer())
      tell_master(number, chain.successor.peer());
}

void Parts::cut_off(const base::Status& why) {
  if (!is_by_part()) return;
  if (cluster_.is_deposed())
    for (const auto& [number, stream] : streams_of_) client_.on_lost(stream, why);
  for (const auto& [peer, at] : std::exchange(missed_, {})) give_up(peer, why);
  give_up_undecided();
  for (auto& [number, chain] : chains_) refuse_unanswered(chain);
}

/// Without the master, nobody decides about a part whose back-up is gone, so its server can't acknowledge anything any more.
void Parts::give_up_undecided() {
  const cluster::View& view = cluster_.view();
  const auto is_gone = [&](base::Peer peer) { return peer != cluster_.self().peer && !cluster_.contacts().is_connected(peer); };
  if (!cluster_.has_lost_master() || cluster_.awaits_master()) return;
  for (const auto& [number, stream] : streams_of_) {
    const cluster::Member* const part = server_of(number);
    // While it gets its copy, nothing may be acknowledged without the next back-up either.
    auto backups = view.chain_of(*part);
    if (!backups.empty()) backups.erase(backups.begin());
    backups.push_back(view.next_backup_of(*part));
    const auto gone = std::ranges::find_if(backups, [&](base::Peer backup) { return backup != base::kNobody && is_gone(backup); });
    if (gone != backups.end() && !client_.is_lost(stream))
      client_.on_lost(stream, base::error(MV_EPEERLOST, "neither the master, {}, nor the back-up of {}, {}, can be reached",
                                          view.name(cluster_.master()), view.name(part->peer), view.name(*gone)));
  }
}

void Parts::part_moved(const cluster::Member& part) {
  if (!is_by_part()) return;
  const cluster::View& view = cluster_.view();
  const base::Peer self = cluster_.self().peer;
  const uint32_t number = part.rank + 1;
  if (part.is_out) missed_.erase(part.peer);
  if (view.serving(part) == self) {
    take_over(part);
  } else {
    heirs_.erase(number);
    relinquish(number);
    const auto chain = view.chain_of(part);
    if (std::ranges::find(chain, self) == chain.end() && view.next_backup_of(part) != self && !led_.contains(number)) {
      chains_.erase(number);
      copies_.erase(number);
    }
  }
  const bool is_heir = view.serving(part) == self && !led_.contains(number);
  if (const auto chain = chains_.find(number); chain != chains_.end() && !is_heir) see_to_successor(number, chain->second, part);
  if (const auto led = led_.find(number); led != led_.end()) see_to_copy(number, led->second, part);
  if (const auto led = led_.find(number); led != led_.end()) see_to_journal(number, led->second);
  see_to_awaited(number);
  follow(part);
}

/// Requests for the part of `server` go to the process that serves it now.
void Parts::follow(const cluster::Member& server) {
  const uint32_t number = server.rank + 1;
  const base::Peer by = cluster_.view().serving(server), stream = streams_of_.at(number);
  if (by == base::kNobody) {
    const cluster::Member* const last = cluster_.view().find(followed_[number]);
    std::string why = last != nullptr && !last->why.empty() ? last->why : server.why;
    if (last != nullptr && last->drained) {  // this node has not heard of the one that followed
      std::vector<base::Peer> lost;
      for (const cluster::Member* other : cluster_.view().servers())
        if (other->is_out && !other->drained) lost.push_back(other->peer);
      why += ", and the process that served them since then is lost";
      if (!lost.empty()) why += fmt::format(" ({})", cluster_.view().names(lost));
    }
    const cluster::View& view = cluster_.view();
    if (why.empty() && view.losses > 0) why = view.loss(view.losses - 1).text();  // another process has taken its place in the same view
    return client_.on_lost(stream, base::error(MV_EPEERLOST, "{}", why.empty() ? "the process that served this part of the tables is lost" : why));
  }
  if (std::exchange(followed_[number], by) == by) return;
  client_.serve_by(stream, by, number, by == cluster_.self().peer || cluster_.contacts().is_connected(by));
}

// ---- time

base::Nanos Parts::next_deadline() const {
  if (!is_by_part()) return base::kNever;
  base::Nanos next = std::min(client_.next_deadline(), compare_at_);
  for (const auto& [peer, at] : missed_) next = std::min(next, at);
  if (!awaited_.empty()) next = std::min(next, look_at_);
  for (const auto& [number, heir] : heirs_) next = std::min(next, heir->ask_at);
  for (const auto& [number, chain] : chains_)
    if (chain.successor.has_refused() && chain.transfer == nullptr) next = std::min(next, chain.repeat_at == base::kNever ? clock_.now() : chain.repeat_at);
  for (const auto& [number, led] : led_) {
    if (led.offer != nullptr && led.content == Led::Content::kUsual) next = std::min(next, led.offer->next_deadline());
    if (led.moment != nullptr && led.content == Led::Content::kNew) next = std::min(next, led.moment->next_deadline());
    if (led.retry_at > base::Nanos(0)) next = std::min(next, led.retry_at);
    if (const checkpoint::HeldSave* const save = led.part->save(); save != nullptr && save->tables) next = std::min(next, save->until);
    if (const base::Nanos since = led.part->withheld_since(); since != base::kNever) next = std::min(next, since + kLongestWithheld);
    next = std::min(next, led.journal->next_deadline());
  }
  for (const auto& [number, copy] : copies_)
    if (copy->arrival != nullptr && copy->arrival->has_all()) next = clock_.now();
  return next;
}

void Parts::tick() {
  if (!is_by_part()) return;
  client_.tick();
  const base::Nanos now = clock_.now();
  for (auto& [number, led] : led_) {
    led.part->send_withheld(now - kLongestWithheld);
    led.journal->tick(host_memory_);
    if (const auto offer = led.offer; offer != nullptr && led.content == Led::Content::kUsual && offer->tick() && led.offer == offer) led.offer.reset();
    if (const auto moment = led.moment; moment != nullptr && led.content == Led::Content::kNew && moment->tick() && led.moment == moment) led.moment.reset();
    if (const checkpoint::HeldSave* const save = led.part->save(); save != nullptr && save->tables && save->until <= now) led.part->written(nullptr);
    if (led.retry_at > base::Nanos(0) && led.retry_at <= now) {
      led.retry_at = base::Nanos(0);
      see_to_copy(number, led, *server_of(number));
    }
  }
  repeat_refused(now);
  for (auto& [number, copy] : copies_) catch_up(*copy, kAtAStretch);
  for (const auto& [number, stream] : streams_of_)
    if (const auto heir = heirs_.find(number); heir != heirs_.end() && heir->second->ask_at <= now) take_over(*server_of(number));
  if (!awaited_.empty() && look_at_ <= now)
    for (const auto& [number, stream] : streams_of_) see_to_awaited(number);
  if (compare_at_ <= now) {
    compare_at_ = now + kCompareEvery;
    compare();
    tell_new_master();  // again: it may not have known yet that it is the master
  }
  for (auto at = missed_.begin(); at != missed_.end();) {
    if (at->second > now) {
      ++at;
      continue;
    }
    if (cluster_.awaits_decision()) {
      (at++)->second = now + kRetryAfter;
      continue;
    }
    const base::Peer server = at->first;
    at = missed_.erase(at);
    const cluster::Member* const member = cluster_.view().find(server);
    const std::string why = member != nullptr && !member->why.empty() ? ": " + member->why : "";
    give_up(server, base::error(MV_EPEERLOST, "{} can't be reached from here, and the master has not declared it lost{}", cluster_.view().name(server), why));
  }
}

void Parts::compare() const {
  for (const auto& [number, led] : led_)
    if (led.chain.to == base::kNobody && led.content == Led::Content::kUsual) led.part->compare();
}

void Parts::flush() {
  if (!is_by_part()) return;
  client_.flush();
  for_each_led([](Part& part) { part.streams().flush(); });
}

}  // namespace mv::replica
