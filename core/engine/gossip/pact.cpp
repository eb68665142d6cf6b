// Gossip's symmetric exchanges: see pact.hpp.

#include "engine/gossip/pact.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "codec/wire.hpp"
#include "engine/gossip/gossip.hpp"

namespace mv::gossip {

using wire::Word;

void Gossip::say(base::Peer to, uint64_t number, Word word, bool proposer) {
  wire::ExchangeBuilder body(builder_.fbb());
  body.add_number(number);
  body.add_word(word);
  body.add_proposer(proposer);
  if (word == Word::Agree) body.add_version(own_version_);
  link_.send(to, builder_.finish(Body::Exchange, body.Finish()));
}

void Gossip::decline(base::Peer to, uint64_t number, bool unfit, const std::string& why) {
  const auto text = builder_.fbb().CreateString(why);
  wire::ExchangeBuilder body(builder_.fbb());
  body.add_number(number);
  body.add_word(Word::Decline);
  body.add_unfit(unfit);
  body.add_why(text);
  link_.send(to, builder_.finish(Body::Exchange, body.Finish()));
}

void Gossip::propose(PeerEntry& peer) {
  if (!attempt_->pact) {
    attempt_->pact.emplace();
    attempt_->pact->number = ++questions_;
    attempt_->pact->priority = rng_.next();
    attempt_->pact->proposer = true;
  }
  attempt_->pact->life = peer.life;
  const auto codec = codec::to_wire(builder_.fbb(), coding_.codec());
  wire::ExchangeBuilder body(builder_.fbb());
  body.add_number(attempt_->pact->number);
  body.add_word(Word::Propose);
  body.add_proposer(true);
  body.add_version(own_version_);
  body.add_priority(attempt_->pact->priority);
  if (!codec.IsNull()) body.add_codec(codec);
  link_.send(peer.life, builder_.finish(Body::Exchange, body.Finish()));
}

// ------------------------------------------------------------ accepting

/// Whoever has waited for this node's fetch to begin; of several the one with the greatest priority, the others go on waiting.
bool Gossip::accept_held() {
  const auto best = std::ranges::max_element(held_, {}, [](const auto& held) { return held.second.priority; });
  if (best == held_.end()) return false;
  const auto [life, proposal] = *best;
  held_.erase(best);
  PeerEntry* const peer = peers_.of_life(life);
  if (peer == nullptr) return accept_held();
  accept(*peer, life, proposal);
  return true;
}

void Gossip::accept(PeerEntry& peer, base::Peer life, const Proposal& proposal) {
  attempt_.emplace(Attempt{});
  attempt_->peer = peer.node.name;
  attempt_->silent_since = clock_.now();
  attempt_->heard = fetched_bytes_;
  attempt_->version = proposal.version;
  attempt_->pact = Pact{.life = life, .number = proposal.number, .priority = proposal.priority, .stage = Pact::Stage::kAgreed};
  say(life, proposal.number, Word::Agree, false);
  begin_reading(peer);
}

void Gossip::on_propose(base::Peer from, const wire::Exchange& said) {
  const PeerEntry* const peer = peers_.of_life(from);
  if (peer == nullptr) return decline(from, said.number(), true, fmt::format("\"{}\" does not have it among its peers", peers_.self().name));
  if (!symmetric()) return decline(from, said.number(), true, fmt::format("\"{}\" has `exchange: pull`", peers_.self().name));
  const auto codec = codec::from_wire(said.codec());
  const codec::Spec theirs = codec.ok() && codec.value() != nullptr ? codec.value()->spec() : codec::Spec();
  if (!codec.ok() || theirs != config_.compression) {
    return decline(from, said.number(), true,
                   fmt::format("\"{}\" has `compression: {}`, the other one {}", peers_.self().name, codec::to_text(config_.compression),
                               codec.ok() ? codec::to_text(theirs) : "one that is unknown here"));
  }
  held_[from] = {said.number(), said.version(), said.priority()};
  settle_proposal(from);
}

/// What becomes of a proposal that has just come.
void Gossip::settle_proposal(base::Peer from) {
  const Proposal proposal = held_.at(from);
  if (!fetching_) return say(from, proposal.number, Word::Wait, false);
  held_.erase(from);
  if (attempt_ && attempt_->pact) {
    const Pact& own = *attempt_->pact;
    if (own.life == from && !own.proposer && own.number == proposal.number) return say(from, own.number, Word::Agree, false);  // it did not hear
    const bool greater = proposal.priority != own.priority ? proposal.priority > own.priority : peers_.of_life(from)->node.name > peers_.self().name;
    const bool yields = !own.is_agreed() && (own.stage == Pact::Stage::kNoted || greater);
    if (!yields && !own.is_agreed() && own.life == from) return;  // it has this node's, which counts
    if (!yields) return decline(from, proposal.number, false, fmt::format("\"{}\" is in another exchange", peers_.self().name));
    withdraw();
  }
  drop_pieces();
  accept(*peers_.of_life(from), from, proposal);
}

// ------------------------------------------------------------ until it is valid

/// The pact that a message of the partner's is about.
Pact* Gossip::pact_with(base::Peer from, const wire::Exchange& said) {
  if (!attempt_ || !attempt_->pact) return nullptr;
  Pact& pact = *attempt_->pact;
  return pact.life == from && pact.number == said.number() && pact.proposer != said.proposer() ? &pact : nullptr;
}

void Gossip::on_exchange(base::Peer from, const wire::Exchange& said) {
  switch (said.word()) {
    case Word::Propose:
      return on_propose(from, said);
    case Word::Wait:
      if (Pact* const pact = pact_with(from, said)) {
        if (!pact->is_agreed()) pact->stage = Pact::Stage::kNoted;
        attempt_->silent_since = clock_.now();
      }
      return;
    case Word::Agree:
      return on_agree(from, said);
    case Word::Decline:
      if (Pact* const pact = pact_with(from, said); pact != nullptr && !pact->is_agreed()) {
        const std::string why = said.why() != nullptr ? said.why()->str() : std::string();
        attempt_->pact.reset();
        return said.unfit() ? fail(why, Fault::kRefused) : skip(why);
      }
      return;
    case Word::Ready:
      return on_ready(from, said);
    case Word::Commit:
      return on_commit(from, said);
    case Word::Withdraw:
      return on_withdraw(from, said);
  }
}

void Gossip::on_agree(base::Peer from, const wire::Exchange& said) {
  Pact* const pact = pact_with(from, said);
  if (pact == nullptr) return say(from, said.number(), Word::Withdraw, true);
  if (pact->is_agreed()) return;
  pact->stage = Pact::Stage::kAgreed;
  attempt_->version = said.version();
  attempt_->silent_since = clock_.now();
  begin_reading(*attempted());
}

/// All of the partner's version is here.
void Gossip::have_whole() {
  Pact& pact = *attempt_->pact;
  const bool theirs = std::exchange(pact.stage, Pact::Stage::kWhole) == Pact::Stage::kOnlyTheirs;
  if (theirs) return commit();
  if (pact.proposer) return;
  pact.said_ready = clock_.now();
  say(pact.life, pact.number, Word::Ready, false);
}

void Gossip::on_ready(base::Peer from, const wire::Exchange& said) {
  if (Pact* const pact = pact_with(from, said)) {
    if (!pact->proposer || !pact->is_agreed()) return;  // it says so again
    if (pact->stage == Pact::Stage::kWhole) return commit();
    pact->stage = Pact::Stage::kOnlyTheirs;
    return;
  }
  const auto before = committed_.find(from);
  const bool valid = before != committed_.end() && before->second == said.number();
  say(from, said.number(), valid ? Word::Commit : Word::Withdraw, true);
}

void Gossip::commit() {
  const Pact pact = *attempt_->pact;
  committed_[pact.life] = pact.number;
  say(pact.life, pact.number, Word::Commit, true);
  ++tally_.valid;
  succeed();
}

void Gossip::on_commit(base::Peer from, const wire::Exchange& said) {
  if (const Pact* const pact = pact_with(from, said); pact != nullptr && pact->awaits_word()) {
    accepted_[from] = pact->number;
    ++tally_.valid;
    return succeed();
  }
  const auto before = accepted_.find(from);
  if (before == accepted_.end() || before->second != said.number()) say(from, said.number(), Word::Withdraw, false);
}

// ------------------------------------------------------------ giving up

/// Tells the partner of the attempt, which ends.
void Gossip::withdraw() {
  if (!attempt_ || !attempt_->pact) return;
  const Pact pact = *attempt_->pact;
  attempt_->pact.reset();
  if (pact.awaits_word()) ++tally_.unsettled;
  say(pact.life, pact.number, Word::Withdraw, pact.proposer);
}

void Gossip::on_withdraw(base::Peer from, const wire::Exchange& said) {
  const auto held = held_.find(from);
  if (said.proposer() && held != held_.end() && held->second.number == said.number()) held_.erase(held);
  if (pact_with(from, said) != nullptr) {
    attempt_->pact.reset();
    return skip(fmt::format("\"{}\" withdrew from the exchange", attempt_->peer));
  }
  const auto valid = committed_.find(from);
  if (said.proposer() || valid == committed_.end() || valid->second != said.number()) return;
  committed_.erase(valid);
  ++tally_.half;
  --tally_.valid;
  const PeerEntry* const peer = peers_.of_life(from);
  base::log_warn("gossip: {} has averaged with {}, which gave the exchange up at that moment: the mean of the two has moved", peers_.self().name,
                 peer != nullptr ? peer->node.name : "a peer");
}

/// The way to the partner is mended, or another: what was said meanwhile may be lost.
void Gossip::pact_again(PeerEntry& peer) {
  Pact& pact = *attempt_->pact;
  if (pact.life != peer.life) {
    if (!pact.awaits_word()) {
      attempt_->pact.reset();
      return skip(fmt::format("\"{}\" was restarted", attempt_->peer));
    }
    return skip(fmt::format("\"{}\" was restarted before it said whether the exchange is valid", attempt_->peer));
  }
  if (!pact.is_agreed()) return propose(peer);
  if (pact.stage != Pact::Stage::kWhole) {
    drop_pieces();
    attempt_->described = false;
    begin_reading(peer);
  } else if (!pact.proposer) {
    say(pact.life, pact.number, Word::Ready, false);
  }
}

}  // namespace mv::gossip
