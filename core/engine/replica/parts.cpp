#include "engine/replica/parts.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"

namespace mv::replica {

using namespace std::chrono_literals;

/// The time between two comparisons of a piece of the values, of 1 MiB.
constexpr base::Nanos kCompareEvery = 1s;

/// Receives the back-up's acknowledgements, one for each input in their order.
class Parts::Acknowledged final : public rpc::Pending {
 public:
  explicit Acknowledged(Outbox& outbox) : outbox_(outbox) {}
  void finish(const base::Status& status, const wire::Message*, std::span<const std::byte>) override {
    // After a failure, the master decides which of the two goes on.
    if (status.ok()) outbox_.input_acknowledged();
  }

 private:
  Outbox& outbox_;
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
      client_(clock, link, options),
      own_(link, pool),
      acknowledged_(std::make_shared<Acknowledged>(own_.outbox())) {}

void Parts::start(const cluster::View& view, table::Server& own) {
  const cluster::Member& self = *view.find(cluster_.self().peer);
  own_tables_ = &own;
  if (!is_replicated()) return own.start(view, self.peer);
  for (const cluster::Member* server : view.servers()) {
    const cluster::Member* const backup = view.backup_of(server->rank);
    follow(*server);
    if (server->peer == self.peer) {
      own_number_ = self.rank + 1;
      backup_ = backup->peer;
      own_.start(view, self, own);
      own_.lead([this](const Part::Input& input) { send_to_backup(input); });
      cluster_.want(backup_);
      compare_at_ = clock_.now() + kCompareEvery;
    } else if (backup->peer == self.peer) {
      auto copy = std::make_unique<Copy>(clock_, link_, pool_);
      copy->part.start(view, *server, copy->tables);
      copies_.emplace(server->rank + 1, std::move(copy));
      cluster_.want(server->peer);
    }
  }
  if (own_number_ == 0) own.start(view, self.peer);
}

// ---- which part, and who serves it

Part* Parts::find(uint32_t number) {
  if (number == own_number_ && number != 0) return &own_;
  const auto copy = copies_.find(number);
  return copy != copies_.end() ? &copy->second->part : nullptr;
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
  if (own_number_ != 0) visit(own_);
  for (auto& [number, copy] : copies_)
    if (copy->part.leads()) visit(copy->part);
}

const table::Server* Parts::tables_of(base::Peer server) const {
  if (server == cluster_.self().peer) return own_tables_;
  for (const auto& [number, copy] : copies_)
    if (const auto* member = server_of(number); member != nullptr && member->peer == server) return &copy->tables;
  return nullptr;
}

std::vector<const table::Server*> Parts::served() const {
  std::vector<const table::Server*> served;
  if (own_tables_ != nullptr) served.push_back(own_tables_);
  for (const auto& [number, copy] : copies_)
    if (copy->part.leads()) served.push_back(&copy->tables);
  return served;
}

std::vector<const rpc::Server*> Parts::served_streams() const {
  std::vector<const rpc::Server*> streams{&streams_};
  if (is_replicated()) streams.push_back(&own_.streams());
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
  if (is_replicated() && serves(from, message.part())) client_.on_answer(server_of(message.part())->peer, message, payload);
}

base::SinkRef Parts::on_answer_header(base::Peer from, const wire::Message& message, size_t bytes) {
  if (!is_replicated() || !serves(from, message.part())) return base::Sink::nowhere();
  return client_.on_answer_header(server_of(message.part())->peer, message, bytes);
}

void Parts::on_request(base::Peer from, const wire::Message& message, std::span<const std::byte> payload, const base::SinkRef& staged) {
  // A request for a part that is not served here came before the view that says so. It is asked for later: see take_over().
  Part* const part = find(message.part());
  if (part != nullptr && part->leads()) part->on_message(from, message, payload, staged);
}

base::SinkRef Parts::on_request_header(base::Peer from, const wire::Message& message, size_t bytes) {
  Part* const part = find(message.part());
  return part != nullptr && part->leads() ? part->streams().on_header(from, message, bytes) : base::Sink::nowhere();
}

// ---- inputs

void Parts::send_to_backup(const Part::Input& input) {
  const auto body = write_input(builder_.fbb(), own_number_, input);
  base::PayloadRef payload;
  if (!input.payload.empty())
    payload = input.staged != nullptr ? base::Payload::kept(input.payload, input.staged) : base::Payload::copy(input.payload);
  base::Frame frame = builder_.finish(wire::Body::Replicate, body, payload);
  const size_t cost = frame.bytes();
  own_.outbox().add_input();
  peers_.call(backup_, {std::move(frame), acknowledged_, false, cost, nullptr});
}

void Parts::replicate(const rpc::Asked& asked, const wire::Replicate& input, std::span<const std::byte> payload, const base::SinkRef& staged) {
  const cluster::Member* const server = server_of(input.part());
  const auto copy = copies_.find(input.part());
  if (copy == copies_.end() || server == nullptr || server->peer != asked.client || copy->second->part.leads())
    return streams_.fail(asked, base::error(MV_EPEERLOST, "{} does not keep a copy of the tables of {}", cluster_.view().name(cluster_.self().peer),
                                            cluster_.view().name(asked.client)));
  const base::Status wrong = copy->second->part.replay(input, payload, staged);
  wrong.ok() ? streams_.finish(asked) : streams_.fail(asked, wrong);
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

// ---- servers

void Parts::on_connected(base::Peer peer) {
  if (!is_replicated()) return;
  for (const cluster::Member* server : cluster_.view().servers())
    if (cluster_.view().serving(*server) == peer && !client_.is_lost(server->peer)) client_.on_connected(server->peer);
}

void Parts::server_missed(const cluster::Member& server, const base::Status& why) {
  if (!is_replicated() || server.is_out) return;
  if (server.peer == cluster_.master()) return give_up(server.peer, why);  // nobody can name a stand-in
  missed_[server.peer] = clock_.now() + cluster_.self().heartbeat_timeout;
}

void Parts::give_up(base::Peer server, const base::Status& why) {
  client_.on_lost(server, why);
  if (server != backup_) return;
  // Nothing that this node's own tables do can be acknowledged any more.
  client_.on_lost(cluster_.self().peer,
                  base::error(MV_EPEERLOST, "this process is cut off from the back-up of its tables, {}", cluster_.view().name(server)));
}

void Parts::server_out(const cluster::Member& server) {
  if (!is_replicated()) return;
  missed_.erase(server.peer);
  if (server.peer == backup_) {
    backup_ = base::kNobody;
    compare_at_ = base::kNever;
    own_.lead_alone();
    base::log_warn("the tables of this server have no back-up any more: {} is lost", cluster_.view().name(server.peer));
  }
  if (cluster_.view().serving(server) == cluster_.self().peer) take_over(server);
  follow(server);
}

/// Requests for the part of `server` go to whoever serves it now.
void Parts::follow(const cluster::Member& server) {
  const base::Peer by = cluster_.view().serving(server);
  if (by == base::kNobody) return client_.on_lost(server.peer, base::Status(MV_EPEERLOST, server.why));
  client_.serve_by(server.peer, by, server.rank + 1, by == cluster_.self().peer || cluster_.contacts().is_connected(by));
}

void Parts::take_over(const cluster::Member& server) {
  const auto copy = copies_.find(server.rank + 1);
  if (copy == copies_.end() || copy->second->part.leads()) return;
  Part& part = copy->second->part;
  part.lead(nullptr);
  part.catch_up(cluster_.view());
  for (const cluster::Member& member : cluster_.view().members)
    if (member.is_worker() && member.state != cluster::State::kLost) part.streams().ask_again(member.peer);
}

// ---- time

base::Nanos Parts::next_deadline() const {
  base::Nanos next = is_replicated() ? std::min(client_.next_deadline(), compare_at_) : base::kNever;
  for (const auto& [peer, at] : missed_) next = std::min(next, at);
  return next;
}

void Parts::tick() {
  if (!is_replicated()) return;
  client_.tick();
  const base::Nanos now = clock_.now();
  if (compare_at_ <= now) {
    compare_at_ = now + kCompareEvery;
    own_.compare();
  }
  for (auto at = missed_.begin(); at != missed_.end();) {
    if (at->second > now) {
      ++at;
      continue;
    }
    const base::Peer server = at->first;
    at = missed_.erase(at);
    give_up(server,
            base::error(MV_EPEERLOST, "{} can't be reached from here, and the master has not declared it lost", cluster_.view().name(server)));
  }
}

void Parts::flush() {
  if (!is_replicated()) return;
  client_.flush();
  for_each_led([](Part& part) { part.streams().flush(); });
}

}  // namespace mv::replica
