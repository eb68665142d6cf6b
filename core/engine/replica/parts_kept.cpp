// What a back-up does with the inputs of the parts of which it keeps copies, and with the copies that arrive.

#include <algorithm>
#include <utility>

#include "engine/replica/parts.hpp"

namespace mv::replica {

using namespace std::chrono_literals;

namespace {
/// For a view that another process has already.
constexpr base::Nanos kLookAgain = 100ms;
/// While a copy arrives, inputs wait for its end. With more bytes than this they are acknowledged only when they are processed, so that the
/// workers go no faster.
constexpr size_t kMostHeldBytes = 32 << 20;

/// Of a copy; the other events are inputs, and the question before a copy.
bool is_piece(wire::ReplicaEvent event) {
  return event == wire::ReplicaEvent::State || event == wire::ReplicaEvent::Rows || event == wire::ReplicaEvent::End;
}
}  // namespace

void Parts::replicate(const rpc::Asked& asked, const wire::Message& message, std::span<const std::byte> payload, const base::SinkRef& staged) {
  const wire::Replicate& input = *message.body_as_Replicate();
  const uint32_t number = input.part();
  if (input.event() == wire::ReplicaEvent::Begin || (input.event() == wire::ReplicaEvent::Leads && input.number() == 0)) return await_view(asked, input);
  if (input.event() == wire::ReplicaEvent::Refused && input.number() == 0) {
    copy_refused(asked.client, input);
    return streams_.finish(asked);
  }
  const auto found = copies_.find(number);
  // A back-up whose first inputs still wait for the copy's end may get others from another predecessor already, or tasks as one of the chain.
  const bool is_of_chain = input.event() == wire::ReplicaEvent::Copy || (is_piece(input.event()) && input.number() != 0);
  const auto arrives = [&] { return found->second->arrival != nullptr; };
  if (found != copies_.end() && arrives() && (is_of_chain || asked.client != found->second->from)) catch_up(*found->second, SIZE_MAX);
  if (found == copies_.end() || found->second->part.leads() ||
      !(arrives() ? asked.client == found->second->from && !is_of_chain : is_predecessor(asked.client, number)))
    return streams_.fail(asked, base::error(MV_EPEERLOST, "{} does not keep a copy of a part that {} passes on",
                                            cluster_.view().name(cluster_.self().peer), cluster_.view().name(asked.client)));
  if (arrives()) return take_in(asked, *found->second, message, payload, staged);
  Part& part = found->second->part;
  InChain& chain = in_chain(number);
  chain.unanswered.emplace_back(input.number(), asked);
  if (input.number() <= part.inputs()) return answer(chain, part);  // its predecessor before this one has passed it on
  if (input.number() != part.inputs() + 1) {
    chain.unanswered.pop_back();
    return streams_.fail(asked, base::error(MV_EPROTOCOL, "the inputs of a part have a gap: {} follows {}", input.number(), part.inputs()));
  }
  base::Status wrong;
  if (is_piece(input.event())) {
    wrong = take_next(found->second, input, payload);
  } else {
    wrong = part.replay(cluster_.self().peer, input, payload, staged);
    if (const auto& next = found->second->next; next != nullptr) next->arrival->hold(asked, message, payload, staged);
  }
  if (!wrong.ok()) {
    chain.unanswered.pop_back();
    return streams_.fail(asked, wrong);
  }
  if (input.event() == wire::ReplicaEvent::Leads) {
    found->second->next.reset();
    if (is_replicated()) part.set_has_all(false);  // its server leaves tables without back-ups out again
    chain.led_by = input.client();
    if (chain.successor.peer() == base::kNobody) refuse_copy(number, input.client(), base::kNobody);
  }
  if (input.event() == wire::ReplicaEvent::Refused) chain.from = chain.to = base::kNobody;
  if (chain.successor.peer() != base::kNobody) chain.successor.forward(builder_.copy(message, kept(payload, staged)));
  if (input.event() == wire::ReplicaEvent::Copy) copy_asked(number, chain, found->second->part, input);
  answer(chain, found->second->part);
  if (!cluster_.why_cut_off().ok()) refuse_unanswered(chain);
}

/// A piece of a copy that replaces the one that is here: its server has loaded a checkpoint. Until the new one is complete, the old one is updated
/// as if there were no load: if the server is lost meanwhile, only the load has failed.
base::Status Parts::take_next(std::unique_ptr<Copy>& copy, const wire::Replicate& piece, std::span<const std::byte> payload) {
  auto next = std::move(copy->next);
  if (next == nullptr) {
    next = std::make_unique<Copy>(clock_, link_, pool_);
    next->arrival = std::make_unique<Arrival>(next->part, next->tables, cluster_.self().peer);
  }
  base::Status wrong = next->arrival->take(*server_of(piece.part()), piece, payload);
  while (wrong.ok() && next->arrival->has_all() && !next->arrival->is_over()) next->arrival->process_next(&wrong);  // they are acknowledged
  if (wrong.ok() && next->arrival->is_over()) {
    next->arrival.reset();
    next->journals.take_from(copy->journals);
    copy = std::move(next);
  } else if (wrong.ok()) {
    copy->next = std::move(next);
  }
  copy->part.took(piece.number());
  return wrong;
}

/// The view that names this node the next back-up, or `client` its predecessor, may not be here yet.
void Parts::await_view(const rpc::Asked& asked, const wire::Replicate& offer) {
  const uint32_t number = offer.part();
  if (const auto before = awaited_.find(number); before != awaited_.end())
    streams_.fail(before->second.asked, base::error(MV_ECANCELED, "the copy of a part was offered again"));
  awaited_.insert_or_assign(number, Awaited{asked, offer.client(), offer.to(), offer.epoch(), offer.event() == wire::ReplicaEvent::Leads});
  see_to_awaited(number);
}

void Parts::see_to_awaited(uint32_t number) {
  const auto found = awaited_.find(number);
  if (found == awaited_.end()) return;
  const Awaited awaited = found->second;
  const base::Peer client = awaited.asked.client;
  const bool is_known = awaited.leads ? is_predecessor(client, number) : serves(client, number) && cluster_.view().next_backup_of(*server_of(number)) == awaited.to;
  if (!is_known && cluster_.view().epoch < awaited.epoch) {
    look_at_ = clock_.now() + kLookAgain;
    return;
  }
  awaited_.erase(found);
  if (!is_known) return streams_.fail(awaited.asked, base::error(MV_ECANCELED, "the copy of a part was offered too late"));
  if (awaited.leads || awaited.to != cluster_.self().peer) return streams_.finish(awaited.asked);
  auto copy = std::make_unique<Copy>(clock_, link_, pool_);
  copy->arrival = std::make_unique<Arrival>(copy->part, copy->tables, cluster_.self().peer);
  copy->from = awaited.from;
  chains_.erase(number);
  copies_.insert_or_assign(number, std::move(copy));
  cluster_.want(awaited.from);
  streams_.finish(awaited.asked);
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

}  // namespace mv::replica
