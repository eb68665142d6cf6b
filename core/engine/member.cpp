#include "engine/member.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "engine/dispatch.hpp"

namespace mv::engine {

using namespace std::chrono_literals;

namespace {
constexpr size_t kPoolBlocks = 32;
/// Room for a stripe of values, or for a message of rows with their ids.
constexpr size_t kBlockBytes = shard::kStripeBytes + 4096;
constexpr base::Nanos kLastWord = 1s;
constexpr size_t kMostObservers = 64;
}  // namespace

/// A barrier in progress: first the flush, then the request to the master.
struct Member::Entering final : rpc::Pending, base::Work, std::enable_shared_from_this<Entering> {
  Entering(Member& member, base::OperationRef operation) : member(member), operation(std::move(operation)), until(this->operation->deadline()) {}
  void withdraw(mv_status code) override { member.withdraw_barrier(shared_from_this(), code); }
  void finish(const base::Status& status, const wire::Message*, std::span<const std::byte>) override {
    end(status.ok() ? flush_error : status);
  }
  void end(const base::Status& status) {
    if (std::exchange(stage, Stage::kOver) == Stage::kOver) return;
    std::erase_if(member.entering_, [&](const auto& other) { return other.get() == this; });
    operation->complete(status);
  }

  Member& member;
  const base::OperationRef operation;
  base::Nanos until;
  base::Status flush_error;
  /// kFlushing: the flush. kAsked: the master is asked. kAskedBack: the deadline passed, and the master is asked which
  /// workers are missing.
  enum class Stage : uint8_t { kFlushing, kAsked, kAskedBack, kOver };
  Stage stage = Stage::kFlushing;
};

Member::Member(const base::Clock& clock, base::Link& link, cluster::Self self, rpc::ClientOptions options, Events events, bool shares_memory,
               checkpoint::Storage* storage)
    : clock_(clock),
      link_(link),
      self_(self),
      events_(std::move(events)),
      pool_(kBlockBytes, kPoolBlocks, self.replicas > 0 && shares_memory ? base::Pool::Blocks::kShared : base::Pool::Blocks::kPrivate),
      rpc_client_(clock, link, options),
      rpc_server_(link, *this),
      cluster_(clock, link, rpc_client_, rpc_server_, *this, std::move(self)),
      parts_(clock, link, cluster_, rpc_client_, rpc_server_, pool_, options),
      table_client_(clock, parts_.requests(), rpc_client_, pool_),
      table_server_(clock, parts_.streams(), pool_, shares_memory),
      commands_(clock, rpc_server_),
      checkpoint_client_(clock, rpc_client_, table_client_, pool_, parts_.is_replicated()),
      participant_(clock, rpc_server_, parts_, storage),
      coordinator_(clock, rpc_client_, rpc_server_, parts_, storage),
      drain_(clock, cluster_, parts_, participant_, coordinator_),
      inquirer_(clock, link, cluster_, table_client_, parts_, coordinator_, commands_, groups_),
      groups_(clock, cluster_, rpc_client_, rpc_server_, pool_),
      channels_(clock, cluster_, rpc_client_, rpc_server_) {
  const auto connect = [this](base::Peer peer) { cluster_.want(peer, cluster::Cluster::Dialer::kSelf); };
  rpc_client_.connect_by(connect);
  parts_.requests().connect_by(connect);
  // A process that is only a server may set a controller later. Commands that arrive earlier wait for it.
  if (self_.role == MV_ROLE_SERVER) commands_.set_controller(table::Commands::Controller::kAwaited, {});
}

void Member::start() {
  rpc_client_.on_connected(self_.peer);  // a node reaches itself
  cluster_.start();
  inquirer_.start();
}

void Member::take_times(base::TraceRing& trace) {
  table_client_.take_times(trace);
  table_server_.gate_log().trace_to(&trace);
  groups_.trace_to(&trace);
}

// ---- messages

void Member::deliver(base::Peer from, const wire::Message& message, std::span<const std::byte> payload, const base::SinkRef& staged) {
  if (observers_.contains(from)) {
    if (message.body_type() == wire::Body::Inquire && message.body_as_Inquire()->whole()) return inquirer_.on_observer_message(from, message);
    observers_.erase(from);
    return link_.close(from);
  }
  cluster_.heard(from);
  const Route& route = route_of(message.body_type());
  if (!cluster_.is_member(from) && !cluster_.hears_stranger(from, message, route.sender)) return;
  if (is_answer(route, message))
    return message.part() != 0 ? parts_.on_answer(from, message, payload) : rpc_client_.on_answer(from, message, payload);
  if (message.part() != 0) return parts_.on_request(from, message, payload, staged);
  if (route.delivery == Delivery::kRequest || route.engine == Engine::kRpc) return rpc_server_.on_message(from, message, payload, staged);
  if (route.engine == Engine::kStatus) return inquirer_.on_message(from, message, payload);
  if (const auto* ping = message.body_as_Ping()) return cluster_.on_ping(from, *ping);
  if (const auto* view = message.body_as_View()) return cluster_.on_view(from, *view, payload);
  if (const auto* abort = message.body_as_Abort()) return cluster_.on_abort(from, *abort);
  if (const auto* note = message.body_as_Unreachable()) return cluster_.on_unreachable(from, *note);
  if (const auto* vote = message.body_as_Vote()) return cluster_.on_vote(from, *vote);
}

void Member::on_message(base::Peer from, const wire::Message& message, std::span<const std::byte> payload) {
  deliver(from, message, payload, nullptr);
}

base::SinkRef Member::on_header(base::Peer from, const wire::Message& message, size_t bytes) {
  if (observers_.contains(from)) return base::Sink::nowhere();
  if (!cluster_.is_member(from) && from != cluster_.master()) return base::Sink::nowhere();
  const Route& route = route_of(message.body_type());
  if (route.engine == Engine::kStatus) return inquirer_.place(from, message, bytes);
  if (message.body_type() == wire::Body::View && message.seq() == 0) return place(message, bytes);
  if (message.part() != 0)
    return is_answer(route, message) ? parts_.on_answer_header(from, message, bytes) : parts_.on_request_header(from, message, bytes);
  return is_answer(route, message) ? rpc_client_.on_answer_header(from, message, bytes) : rpc_server_.on_header(from, message, bytes);
}

void Member::on_payload(base::Peer from, const wire::Message& message, base::Sink& sink) {
  if (parts_.is_unserved(sink)) return;
  const auto staged = sink.discards() ? base::Sink::nowhere() : base::Sink::into(sink.memory(), sink.keep());
  deliver(from, message, sink.memory(), staged);
}

void Member::on_connected(base::Peer peer, const std::string& address) {
  cluster_.on_connected(peer, address);
  parts_.on_connected(peer);
}
void Member::on_dial_failed(const std::string& address, const base::Status& why) { cluster_.on_dial_failed(address, why); }
void Member::on_lost(base::Peer peer, const base::Status& why) {
  inquirer_.on_lost(peer);
  if (observers_.erase(peer) == 0) cluster_.on_lost(peer, why);
}

void Member::on_observer(base::Peer peer) {
  if (observers_.size() >= kMostObservers || cluster_.view().find(peer) != nullptr) return link_.close(peer);
  observers_.insert(peer);
}

// ---- requests

base::SinkRef Member::place(const wire::Message& request, size_t bytes) {
  if (const auto* collect = request.body_as_Collect()) return groups_.place(*collect, bytes);
  base::Pool::Block block = pool_.take(bytes);
  return base::Sink::into(block.bytes, block.memory);
}

void Member::on_request(const rpc::Asked& asked, const wire::Message& request, std::span<const std::byte> payload,
                        const base::SinkRef& staged) {
  const Route& route = route_of(request.body_type());
  if (!cluster_.may_send(asked.client, route.sender))
    return rpc_server_.fail(asked, base::error(MV_EPROTOCOL, "{} is not allowed to send {}", cluster_.view().name(asked.client),
                                               wire::EnumNameBody(request.body_type())));
  if (route.engine == Engine::kCluster) return cluster_.on_request(asked, request);
  if (route.engine == Engine::kGroups) return groups_.on_request(asked, request, payload, staged);
  if (route.engine == Engine::kChannels) return channels_.on_request(asked, request, payload);
  if (route.engine == Engine::kEntry) {
    cluster_.want(asked.client);
    return table_client_.entry().on_request(rpc_server_, asked, request);
  }
  if ((self_.role & MV_ROLE_SERVER) == 0)
    return rpc_server_.fail(asked, base::error(MV_EPROTOCOL, "rank {} is not a server", self_.rank));
  switch (route.engine) {
    case Engine::kTables:
      if (parts_.is_by_part())
        return rpc_server_.fail(asked, base::error(MV_EPROTOCOL, "{} does not name the part of the tables that it is for", wire::EnumNameBody(request.body_type())));
      break;
    case Engine::kCoordinator:
      return coordinator_.on_request(asked, request, payload);
    case Engine::kParticipant:
      return participant_.on_request(asked, request, payload);
    case Engine::kReplicas:
      return parts_.replicate(asked, request, payload, staged);
    case Engine::kCommands:
      return commands_.on_request(asked, *request.body_as_Command(), payload);
    default:
      break;
  }
  table_server_.on_request(asked, request, payload, staged);
}

void Member::on_data(const rpc::Asked& asked, std::span<const std::byte> payload, const base::SinkRef& staged) {
  table_server_.on_data(asked, payload, staged);
}

void Member::on_cancel(const rpc::Asked& asked) {
  switch (route_of(rpc_server_.kind_of(asked)).engine) {
    case Engine::kCluster:
      return cluster_.on_cancel(asked);
    case Engine::kCoordinator:
      return coordinator_.on_cancel(asked);
    case Engine::kCommands:
      return commands_.on_cancel(asked);
    case Engine::kChannels:
      return channels_.on_cancel(asked);
    case Engine::kEntry:
      return table_client_.entry().on_cancel(rpc_server_, asked);
    case Engine::kTables:
      return table_server_.on_cancel(asked);
    default:
      return;  // the others let their requests continue
  }
}

// ---- membership events

void Member::on_view(const cluster::View& view) {
  parts_.start(view, table_server_);
  commands_.start(view, self_.peer);
  table_client_.start(view, self_.peer);
  checkpoint_client_.start(view);
  participant_.start(view);
  coordinator_.start(view);
  for (const cluster::Member* server : view.servers()) served_by_[server->rank] = view.serving(*server);
}

void Member::on_ready() { events_.on_ready(cluster_.view()); }
void Member::on_failed(const base::Status& why) { events_.on_failed(why); }

void Member::on_member_finished(const cluster::Member& member) {
  parts_.is_by_part() ? parts_.worker_finished(member.peer) : table_server_.worker_finished(member.peer);
  coordinator_.worker_finished(member.peer);
  groups_.finished(member.peer, base::error(MV_EPEERLOST, "{} has finished", cluster_.view().name(member.peer)));
  channels_.gone(member.peer);
  table_client_.entry().gone(member.peer);
  tell(cluster::Change::kLeft, member, "it has finished");
  events_.on_change();
}

void Member::on_member_lost(const cluster::Member& member, const base::Status& why) {
  if (member.is_worker() && !member.drained) coordinator_.worker_lost(member.peer, why);
  participant_.lost(member.peer);
  groups_.lost(member.peer, why, cluster_.all_hear());
  channels_.gone(member.peer);
  table_client_.entry().gone(member.peer);
  inquirer_.on_lost(member.peer);
  tell(member.drained ? cluster::Change::kDrained : cluster::Change::kLost, member, member.drained ? member.why : why.text());
  events_.on_change();
}

void Member::on_worker_lost(const cluster::Member& worker, const base::Status& why) {
  parts_.is_by_part() ? parts_.worker_lost(worker.peer, why) : table_server_.worker_lost(worker.peer, why);
}

void Member::on_deposed() {
  parts_.drop_journals();
  participant_.cut_off();
}

void Member::on_member_joined(const cluster::Member& member) {
  if (member.is_worker()) parts_.is_by_part() ? parts_.worker_joined(member) : table_server_.worker_joined(member.peer);
  groups_.joined(member);
  tell(cluster::Change::kJoined, member, "it takes a vacant place, or that of a process that is gone");
  events_.on_change();
}

void Member::on_server_missed(const cluster::Member& server, const base::Status& why) {
  participant_.lost(server.peer);
  parts_.server_missed(server, why);
}

void Member::on_part_moved(const cluster::Member& part) {
  parts_.part_moved(part);
  tell_who_serves(part);
  // Only server 0 is connected with all servers; now this process directs checkpoints in its place.
  if (parts_.can_move() && parts_.served(0) != nullptr)
    for (const cluster::Member* server : cluster_.view().servers()) cluster_.want(server->peer, cluster::Cluster::Dialer::kSelf);
  coordinator_.servers_changed();
  checkpoint_client_.servers_changed();
  drain_.advance();
}

void Member::on_member_draining(const cluster::Member& member) {
  if (member.peer == self_.peer && events_.on_drain) events_.on_drain();
  tell(cluster::Change::kDraining, member, "it is draining: it hands its tables over to other servers");
}

void Member::tell(cluster::Change change, const cluster::Member& member, std::string reason, uint32_t part) {
  if (member.peer != self_.peer) tell_of({change, member.rank, member.role, part, 0, std::move(reason)});
}

void Member::tell_of(cluster::MembershipEvent event) {
  event.epoch = cluster_.view().epoch + (cluster_.is_master() ? 1 : 0);  // the master publishes the list with it after this
  cluster_.news().note(event, clock_.now());
  if (events_.on_event) events_.on_event(event);
}

/// Another process serves the part from now on, perhaps this one.
void Member::tell_who_serves(const cluster::Member& part) {
  const cluster::View& view = cluster_.view();
  const base::Peer by = view.serving(part);
  const base::Peer before = std::exchange(served_by_[part.rank], by);
  if (before == by) return;
  const cluster::Member *const heir = view.find(by), *const former = view.find(before);
  if (heir == nullptr) return;
  if (cluster_.is_master() && former != nullptr && former->is_out)
    base::detail::log_at(former->drained ? MV_LOG_INFO : MV_LOG_WARN, "{} serves the tables of {} from now on", view.name(by), view.name(part.peer));
  tell_of({cluster::Change::kTookOver, heir->rank, heir->role, part.rank, 0, fmt::format("it serves the tables of {} from now on", view.name(part.peer))});
}

void Member::on_drained() { drain_.handed_over(); }

void Member::on_new_master() {
  parts_.tell_new_master();
  drain_.ask_new_master();
  checkpoint_client_.master_found();
  coordinator_.master_found();
  events_.on_change();
}

void Member::on_cut_off(const base::Status& why) {
  parts_.cut_off(why);
  if (cluster_.is_master()) drain_.master_lost(why);
}

void Member::on_news() {
  const bool has_no_master = cluster_.is_kept() ? !cluster_.why_cut_off().ok() : cluster_.has_lost_master();
  if (!cluster_.is_master() && !cluster_.awaits_master() && has_no_master) {
    const base::Status why = base::error(MV_EPEERLOST, "{}, which would name its stand-in, can't be reached", cluster_.view().name(cluster_.master()));
    checkpoint_client_.master_lost(why);
    coordinator_.master_lost(why);
    drain_.master_lost(why);
    groups_.master_lost();
  }
  events_.on_change();
}

void Member::on_welcome(base::Peer peer) {
  rpc_server_.ask_again(peer);
  parts_.ask_again(peer);
}

// ---- barriers and leaving

void Member::barrier(base::OperationRef operation, bool flushed) {
  const auto entering = std::make_shared<Entering>(*this, std::move(operation));
  entering_.push_back(entering);
  entering->operation->begin(entering);
  const auto enter = [this, entering](const base::Status& status) {
    if (entering->stage == Entering::Stage::kOver) return;
    entering->flush_error = status;
    entering->stage = Entering::Stage::kAsked;
    cluster_.barrier(entering);
  };
  flushed ? table_client_.changes().flush(enter) : enter({});
}

void Member::withdraw_barrier(const std::shared_ptr<Entering>& entering, mv_status code) {
  const base::Status status = base::error(code, "barrier: withdrawn");
  const bool asked = entering->stage != Entering::Stage::kFlushing;
  entering->end(status);  // first, so that the answer to the cancel below is ignored
  if (!asked) return;
  cluster_.cancel_barrier(entering.get());
  cluster_.abandon_barrier(entering.get(), status);
}

void Member::expire_barriers() {
  const base::Nanos now = clock_.now();
  const auto entering = entering_;
  for (const auto& late : entering) {
    if (late->until > now || late->stage == Entering::Stage::kOver) continue;
    if (late->stage == Entering::Stage::kFlushing) {
      late->end(base::error(MV_ETIMEOUT, "barrier: this worker's own adds are not applied yet"));
    } else if (std::exchange(late->stage, Entering::Stage::kAskedBack) == Entering::Stage::kAsked) {
      late->until = now + kLastWord;
      cluster_.cancel_barrier(late.get());
    } else {
      cluster_.abandon_barrier(late.get(), base::error(MV_ETIMEOUT, "barrier: no answer from {}", cluster_.view().name(cluster_.master())));
    }
  }
}

void Member::leave(std::function<void(const base::Status&)> left) {
  channels_.close_all();
  table_client_.changes().flush([this, left](const base::Status& flush_error) {
    checkpoint_client_.finish([this, left, flush_error] { groups_.leave([this, left, flush_error] { tell_all(left, flush_error); }); });
  });
}

void Member::leave_without_flush() {
  groups_.close_all();
  tell_all([](const base::Status&) {}, {});
}

void Member::tell_all(std::function<void(const base::Status&)> left, const base::Status& flush_error) {
  if (std::exchange(told_all_, true)) return left(flush_error);
  class Told final : public rpc::Pending {
   public:
    Told(std::shared_ptr<size_t> open, std::function<void()> all_told) : open_(std::move(open)), all_told_(std::move(all_told)) {}
    void finish(const base::Status&, const wire::Message*, std::span<const std::byte>) override {
      if (--*open_ == 0) all_told_();
    }

   private:
    const std::shared_ptr<size_t> open_;
    const std::function<void()> all_told_;
  };
  const size_t targets = cluster_.leave_targets().size();
  const auto open = std::make_shared<size_t>(targets);
  std::vector<rpc::PendingRef> pendings;
  for (size_t i = 0; i < targets; ++i) pendings.push_back(std::make_shared<Told>(open, [left, flush_error] { left(flush_error); }));
  cluster_.leave(pendings);
  cluster_.finish_self();
  if (targets == 0) left(flush_error);
}

// ---- time

base::Nanos Member::next_deadline() const {
  base::Nanos next = std::min({rpc_client_.next_deadline(), rpc_server_.next_deadline(), parts_.next_deadline(), cluster_.next_deadline(),
                               table_client_.next_deadline(), checkpoint_client_.next_deadline(), participant_.next_deadline(), coordinator_.next_deadline(),
                               inquirer_.next_deadline(), groups_.next_deadline(), channels_.next_deadline(), drain_.next_deadline()});
  for (const auto& entering : entering_) next = std::min(next, entering->until);
  return next;
}

void Member::tick() {
  rpc_client_.tick();
  rpc_server_.tick(clock_.now());
  parts_.tick();
  cluster_.tick();
  table_client_.tick();
  checkpoint_client_.tick();
  participant_.tick();
  coordinator_.tick();
  inquirer_.tick();
  groups_.tick();
  channels_.tick();
  drain_.tick();
  expire_barriers();
}

void Member::flush() {
  rpc_client_.flush();
  rpc_server_.flush();
  parts_.flush();
}

}  // namespace mv::engine
