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
constexpr base::Nanos kRetryAfter = 1s;
/// While a copy arrives, inputs wait for its end. With more bytes than this they are acknowledged only when they are processed, so that the
/// workers go no faster.
constexpr size_t kMostHeldBytes = 32 << 20;
/// Inputs that are processed at a stretch when the copy has arrived.
constexpr size_t kAtAStretch = 64;

/// How long a worker waits for the others' parts of a round before its own part goes to the back-up without them, and is acknowledged.
constexpr base::Nanos kLongestWithheld = 2ms;

/// Of a copy; the other events are inputs, and the question before a copy.
bool is_piece(wire::ReplicaEvent event) {
  return event == wire::ReplicaEvent::State || event == wire::ReplicaEvent::Rows || event == wire::ReplicaEvent::End;
}

}  // namespace

/// Receives the back-up's acknowledgements, one for each input in their order.
class Parts::Acknowledged final : public rpc::Pending {
 public:
  explicit Acknowledged(Outbox& outbox) : outbox_(&outbox) {}
  /// The back-up does not count any more.
  void ignore() { outbox_ = nullptr; }
  void finish(const base::Status& status, const wire::Message*, std::span<const std::byte>) override {
    // After a failure, the master decides which of the two goes on.
    if (status.ok() && outbox_ != nullptr) outbox_->input_acknowledged();
  }

 private:
  Outbox* outbox_;
};

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
    if (view.serving(*server) == self.peer) {
      if (server->peer == self.peer) {
        own_.start(view, self, own, is_replicated());
        lead(number, own_, own);
      } else {  // that of a vacant place
        const auto& added = copies_.emplace(number, std::make_unique<Copy>(clock_, link_, pool_)).first->second;
        added->part.start(view, *server, added->tables, is_replicated());
        lead(number, added->part, added->tables);
      }
      Led& led = led_.at(number);
      led.backup = view.backup_of(*server);
      if (led.backup == base::kNobody) continue;
      pass_on(number, led);
      cluster_.want(led.backup);
    } else if (view.backup_of(*server) == self.peer) {
      auto copy = std::make_unique<Copy>(clock_, link_, pool_);
      copy->part.start(view, *server, copy->tables);
      copies_.emplace(number, std::move(copy));
      cluster_.want(view.serving(*server));
    }
  }
  if (led_.empty()) own.start(view, self.peer);  // no server, or one that has taken the place of a lost one
}

// ---- which part, and who serves it

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
  if (!is_by_part() || !serves(from, message.part())) return base::Sink::nowhere();
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
  led_.emplace(number, Led{&part, &tables});
}

/// The part's inputs go to the back-up from now on.
void Parts::pass_on(uint32_t number, Led& led) {
  led.tables->set_has_copy(true);
  led.acknowledged = std::make_shared<Acknowledged>(led.part->outbox());
  led.part->pass_on([this, number, &led](const Part::Input& input) { send_to_backup(number, led, input); });
}

void Parts::send_to_backup(uint32_t number, const Led& led, const Part::Input& input) {
  const auto body = write_input(builder_.fbb(), number, input);
  base::PayloadRef payload;
  if (!input.payload.empty() && input.staged == nullptr) {
    const base::Pool::Block copy = pool_.take(input.payload.size());
    std::memcpy(copy.bytes.data(), input.payload.data(), input.payload.size());
    payload = base::Payload::kept(copy.bytes, copy.memory);
  } else if (!input.payload.empty()) {
    payload = base::Payload::kept(input.payload, input.staged);
  }
  base::Frame frame = builder_.finish(wire::Body::Replicate, body, payload);
  const size_t cost = frame.bytes();
  led.part->outbox().add_input();
  peers_.call(led.backup, {std::move(frame), led.acknowledged, false, cost, nullptr});
}

void Parts::without_backup(Led& led) {
  led.transfer.reset();
  if (led.acknowledged != nullptr) led.acknowledged->ignore();
  led.acknowledged.reset();
  led.backup = base::kNobody;
  led.part->lead_alone();
  led.tables->set_has_copy(is_replicated());
  if (led.content == Led::Content::kNew) set_content(led, Led::Content::kUsual);
  if (led.replaced) std::exchange(led.replaced, nullptr)();  // nobody has the old content any more
}

void Parts::begin_transfer(uint32_t number, Led& led, base::Peer to) {
  led.backup = to;
  Transfer::Events events;
  events.passes_on = [this, number, &led] { pass_on(number, led); };
  events.is_equal = [this, number, to] { tell_master(number, to); };
  events.failed = [this, &led] {
    without_backup(led);
    led.retry_at = clock_.now() + kRetryAfter;
  };
  led.transfer = std::make_shared<Transfer>(clock_, peers_, *led.part, number, to, std::move(events));
  cluster_.want(to, cluster::Cluster::Dialer::kSelf);
  led.transfer->begin();
}

void Parts::tell_master(uint32_t number, base::Peer backup) {
  base::Frame frame = builder_.finish(wire::Body::Copied, wire::CreateCopied(builder_.fbb(), number, backup));
  peers_.call(cluster_.master(), {std::move(frame), std::make_shared<rpc::Ignored>(), true, 0, nullptr});
}

/// Does what the master has decided about the back-up of a part that this node serves.
void Parts::see_to_backup(uint32_t number, Led& led, const cluster::Member& part) {
  const cluster::View& view = cluster_.view();
  const base::Peer equal = view.backup_of(part), next = view.next_backup_of(part);
  if (led.backup != base::kNobody && led.backup != equal && led.backup != next) {
    if (is_replicated()) base::log_warn("the tables of {} have no back-up any more: {} has left or is lost", view.name(part.peer), view.name(led.backup));
    without_backup(led);
  }
  if (led.backup == base::kNobody && next != base::kNobody && clock_.now() >= led.retry_at) begin_transfer(number, led, next);
  if (led.content == Led::Content::kNew && led.transfer == nullptr) refill(number, led);
  if (led.backup != base::kNobody && led.backup == equal && led.transfer != nullptr && led.content == Led::Content::kUsual) {
    base::log_info("the tables of {} have a {}: {}", view.name(part.peer), is_replicated() ? "back-up again" : "copy", view.name(equal));
    led.transfer.reset();
  }
}

// ---- loads of checkpoints

const Parts::Led* Parts::led_of(uint64_t part) const {
  const auto servers = cluster_.view().servers();
  const auto led = part < servers.size() ? led_.find(servers[part]->rank + 1) : led_.end();
  return led != led_.end() ? &led->second : nullptr;
}
Parts::Led* Parts::led_of(uint64_t part) { return const_cast<Led*>(std::as_const(*this).led_of(part)); }

table::CheckpointTables* Parts::served(uint64_t part) {
  if (!is_by_part())
    return own_tables_ != nullptr && cluster_.view().server_id(cluster_.self().peer) == static_cast<int64_t>(part) ? &own_tables_->checkpoint_tables()
                                                                                                                   : nullptr;
  const Led* const led = led_of(part);
  return led != nullptr ? &led->tables->checkpoint_tables() : nullptr;
}

bool Parts::is_elsewhere(uint64_t part) const {
  const auto servers = cluster_.view().servers();
  return part < servers.size() && given_.contains(servers[part]->rank + 1);
}

bool Parts::is_being_copied(uint64_t part) const {
  const Led* const led = led_of(part);
  return led != nullptr && (led->content != Led::Content::kUsual || (led->transfer != nullptr && led->acknowledged != nullptr));
}

void Parts::begin_replacing(uint64_t part) {
  if (Led* const led = led_of(part)) set_content(*led, Led::Content::kChanging);
}

void Parts::replaced(uint64_t part, std::function<void()> done) {
  Led* const led = led_of(part);
  if (led == nullptr) return done();
  set_content(*led, Led::Content::kUsual);
  if (led->acknowledged == nullptr) return done();  // no back-up, or one that has nothing yet
  set_content(*led, Led::Content::kNew);
  led->replaced = std::move(done);
  refill(cluster_.view().servers()[part]->rank + 1, *led);
}

/// While a load replaces the values, the back-up gets all inputs as they come: it may not get the new values.
void Parts::set_content(Led& led, Led::Content content) {
  led.content = content;
  led.part->may_withhold(content == Led::Content::kUsual);
}

/// Gives the back-up the new content.
void Parts::refill(uint32_t number, Led& led) {
  Transfer::Events events;
  events.passes_on = [] {};
  events.is_equal = [&led] {
    led.transfer.reset();
    set_content(led, Led::Content::kUsual);
    if (led.replaced) std::exchange(led.replaced, nullptr)();
  };
  events.failed = [this, &led] {
    led.transfer.reset();
    led.retry_at = clock_.now() + kRetryAfter;
  };
  led.transfer = std::make_shared<Transfer>(clock_, peers_, *led.part, number, led.backup, std::move(events));
  led.transfer->begin_again();
}

// ---- the back-up

void Parts::replicate(const rpc::Asked& asked, const wire::Message& message, std::span<const std::byte> payload, const base::SinkRef& staged) {
  const wire::Replicate& input = *message.body_as_Replicate();
  if (input.event() == wire::ReplicaEvent::Begin) return await_copy(asked, input.part());
  const auto copy = copies_.find(input.part());
  if (copy == copies_.end() || !serves(asked.client, input.part()) || copy->second->part.leads())
    return streams_.fail(asked, base::error(MV_EPEERLOST, "{} does not keep a copy of a part that {} serves",
                                            cluster_.view().name(cluster_.self().peer), cluster_.view().name(asked.client)));
  if (copy->second->arrival != nullptr) return take_in(asked, *copy->second, message, payload, staged);
  if (is_piece(input.event())) return take_next(asked, copy->second, input, payload);
  const base::Status wrong = copy->second->part.replay(cluster_.self().peer, input, payload, staged);
  if (const auto& next = copy->second->next; next != nullptr) next->arrival->hold(asked, message, payload, staged);
  wrong.ok() ? streams_.finish(asked) : streams_.fail(asked, wrong);
}

/// A piece of a copy that replaces the one that is here: its server has loaded a checkpoint. Until the new one is complete, the old one goes on
/// as if there were no load: if the server is lost meanwhile, only the load has failed.
void Parts::take_next(const rpc::Asked& asked, std::unique_ptr<Copy>& copy, const wire::Replicate& piece, std::span<const std::byte> payload) {
  auto next = std::move(copy->next);
  if (next == nullptr) {
    next = std::make_unique<Copy>(clock_, link_, pool_);
    next->arrival = std::make_unique<Arrival>(next->part, next->tables, cluster_.self().peer);
  }
  base::Status wrong = next->arrival->take(*server_of(piece.part()), piece, payload);
  while (wrong.ok() && next->arrival->has_all() && !next->arrival->is_over()) next->arrival->process_next(&wrong);  // they are acknowledged
  if (!wrong.ok()) return streams_.fail(asked, wrong);
  const bool is_equal = next->arrival->is_over();
  if (is_equal) next->arrival.reset();
  (is_equal ? copy : copy->next) = std::move(next);
  streams_.finish(asked);
}

/// The view that names this node the next back-up may not be here yet.
void Parts::await_copy(const rpc::Asked& asked, uint32_t number) {
  if (const auto before = awaited_.find(number); before != awaited_.end())
    streams_.fail(std::exchange(before->second, asked), base::error(MV_ECANCELED, "the copy of a part was offered again"));
  awaited_.insert_or_assign(number, asked);
  grant_copy(number);
}

void Parts::grant_copy(uint32_t number) {
  const auto awaited = awaited_.find(number);
  if (awaited == awaited_.end() || !serves(awaited->second.client, number)) return;
  if (cluster_.view().next_backup_of(*server_of(number)) != cluster_.self().peer) return;
  auto copy = std::make_unique<Copy>(clock_, link_, pool_);
  copy->arrival = std::make_unique<Arrival>(copy->part, copy->tables, cluster_.self().peer);
  copies_.insert_or_assign(number, std::move(copy));
  cluster_.want(awaited->second.client);
  streams_.finish(awaited->second);
  awaited_.erase(awaited);
}

/// A piece of a copy that arrives, or an input that comes meanwhile.
void Parts::take_in(const rpc::Asked& asked, Copy& copy, const wire::Message& message, std::span<const std::byte> payload,
                    const base::SinkRef& staged) {
  const wire::Replicate& input = *message.body_as_Replicate();
  if (is_piece(input.event())) {
    const base::Status wrong = copy.arrival->take(*server_of(input.part()), input, payload);
    wrong.ok() ? streams_.finish(asked) : streams_.fail(asked, wrong);
    catch_up(copy, 0);
    return;
  }
  copy.arrival->hold(asked, message, payload, staged);
  if (copy.arrival->held_bytes() <= kMostHeldBytes) streams_.finish(asked);
}

/// Processes inputs that waited for the end of the copy. False if there are more, or it has not arrived.
bool Parts::catch_up(Copy& copy, size_t most) {
  if (copy.arrival == nullptr) return true;
  if (!copy.arrival->has_all()) return false;
  for (size_t i = 0; i < most && !copy.arrival->is_over(); ++i) {
    base::Status wrong;
    const rpc::Asked asked = copy.arrival->process_next(&wrong);
    wrong.ok() ? streams_.finish(asked) : streams_.fail(asked, wrong);
  }
  if (!copy.arrival->is_over()) return false;
  copy.arrival.reset();
  return true;
}

// ---- servers

void Parts::on_connected(base::Peer peer) {
  if (!is_by_part()) return;
  for (const auto& [number, stream] : streams_of_)
    if (serves(peer, number) && !client_.is_lost(stream)) client_.on_connected(stream);
}

void Parts::server_missed(const cluster::Member& server, const base::Status& why) {
  if (!is_by_part() || server.is_out) return;
  if (server.peer == cluster_.master() && !cluster_.awaits_master()) return give_up(server.peer, why);  // nobody can name a stand-in
  // It may have handed its tables over and left, which this node learns from the master, like the loss.
  const bool master_tells = cluster_.is_master() || cluster_.contacts().is_connected(cluster_.master());
  if (!is_replicated() && !server.departs() && (server.state == cluster::State::kFinished || !master_tells)) return give_up(server.peer, why);
  missed_[server.peer] = clock_.now() + cluster_.self().heartbeat_timeout;
}

void Parts::give_up(base::Peer server, const base::Status& why) {
  for (const auto& [number, stream] : streams_of_)
    if (serves(server, number)) client_.on_lost(stream, why);
  // Nothing can be acknowledged any more of parts whose back-up it is.
  for (const auto& [number, led] : led_)
    if (led.backup == server && led.acknowledged != nullptr)
      client_.on_lost(streams_of_.at(number),
                      base::error(MV_EPEERLOST, "this process is cut off from the back-up of its tables, {}", cluster_.view().name(server)));
  give_up_undecided();
}

void Parts::tell_new_master() {
  for (const auto& [number, led] : led_)
    if (led.transfer != nullptr && led.transfer->is_confirmed() && led.backup != cluster_.view().backup_of(*server_of(number))) tell_master(number, led.backup);
}

void Parts::cut_off(const base::Status& why) {
  if (!is_by_part()) return;
  if (cluster_.is_deposed())
    for (const auto& [number, stream] : streams_of_) client_.on_lost(stream, why);
  for (const auto& [peer, at] : std::exchange(missed_, {})) give_up(peer, why);
  give_up_undecided();
}

/// Without the master, nobody decides about a part whose back-up is gone, so its server can't acknowledge anything any more.
void Parts::give_up_undecided() {
  const cluster::View& view = cluster_.view();
  const auto is_gone = [&](base::Peer peer) { return peer != cluster_.self().peer && !cluster_.contacts().is_connected(peer); };
  if (!is_gone(cluster_.master()) || cluster_.awaits_master()) return;
  for (const auto& [number, stream] : streams_of_) {
    const cluster::Member* const part = server_of(number);
    // While it gets its copy, nothing may be acknowledged without the next back-up either.
    const base::Peer backup = view.backup_of(*part) != base::kNobody ? view.backup_of(*part) : view.next_backup_of(*part);
    if (backup != base::kNobody && is_gone(backup) && !client_.is_lost(stream))
      client_.on_lost(stream, base::error(MV_EPEERLOST, "neither the master, {}, nor the back-up of {}, {}, can be reached",
                                          view.name(cluster_.master()), view.name(part->peer), view.name(backup)));
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
    if (const auto led = led_.find(number); led != led_.end()) see_to_backup(number, led->second, part);
  } else {
    relinquish(number);
    if (view.backup_of(part) != self && view.next_backup_of(part) != self && !led_.contains(number)) copies_.erase(number);
  }
  grant_copy(number);
  follow(part);
}

/// Requests for the part of `server` go to whoever serves it now.
void Parts::follow(const cluster::Member& server) {
  const uint32_t number = server.rank + 1;
  const base::Peer by = cluster_.view().serving(server), stream = streams_of_.at(number);
  if (by == base::kNobody) {
    const cluster::Member* const last = cluster_.view().find(followed_[number]);
    const std::string why = last != nullptr && last->drained ? fmt::format("{}, and the process that served them since then is lost", last->why)
                            : last != nullptr && !last->why.empty() ? last->why
                                                                    : server.why;
    return client_.on_lost(stream, base::error(MV_EPEERLOST, "{}", why.empty() ? "the process that served this part of the tables is lost" : why));
  }
  if (std::exchange(followed_[number], by) == by) return;
  client_.serve_by(stream, by, number, by == cluster_.self().peer || cluster_.contacts().is_connected(by));
}

void Parts::take_over(const cluster::Member& server) {
  const uint32_t number = server.rank + 1;
  const auto copy = copies_.find(number);
  if (copy == copies_.end() || led_.contains(number) || !catch_up(*copy->second, SIZE_MAX)) return;
  Part& part = copy->second->part;
  copy->second->next.reset();
  lead(number, part, copy->second->tables);
  part.catch_up(cluster_.view());
  for (const cluster::Member& member : cluster_.view().members)
    if (member.is_worker() && member.state != cluster::State::kLost) part.streams().ask_again(member.peer);
}

// ---- time

base::Nanos Parts::next_deadline() const {
  if (!is_by_part()) return base::kNever;
  base::Nanos next = std::min(client_.next_deadline(), compare_at_);
  for (const auto& [peer, at] : missed_) next = std::min(next, at);
  for (const auto& [number, led] : led_) {
    if (led.transfer != nullptr && led.content != Led::Content::kChanging) next = std::min(next, led.transfer->next_deadline());
    if (led.retry_at > base::Nanos(0)) next = std::min(next, led.retry_at);
    if (const base::Nanos since = led.part->withheld_since(); since != base::kNever) next = std::min(next, since + kLongestWithheld);
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
    if (const auto transfer = led.transfer; transfer != nullptr && led.content != Led::Content::kChanging)
      transfer->tick();  // it may fail, and be dropped
    if (led.retry_at > base::Nanos(0) && led.retry_at <= now) {
      led.retry_at = base::Nanos(0);
      see_to_backup(number, led, *server_of(number));
    }
  }
  for (auto& [number, copy] : copies_) catch_up(*copy, kAtAStretch);
  if (compare_at_ <= now) {
    compare_at_ = now + kCompareEvery;
    compare();
  }
  for (auto at = missed_.begin(); at != missed_.end();) {
    if (at->second > now) {
      ++at;
      continue;
    }
    if (cluster_.awaits_master()) {
      (at++)->second = now + kRetryAfter;
      continue;
    }
    const base::Peer server = at->first;
    at = missed_.erase(at);
    give_up(server,
            base::error(MV_EPEERLOST, "{} can't be reached from here, and the master has not declared it lost", cluster_.view().name(server)));
  }
}

void Parts::compare() const {
  for (const auto& [number, led] : led_)
    if (led.transfer == nullptr && led.content == Led::Content::kUsual) led.part->compare();
}

void Parts::flush() {
  if (!is_by_part()) return;
  client_.flush();
  for_each_led([](Part& part) { part.streams().flush(); });
}

}  // namespace mv::replica
