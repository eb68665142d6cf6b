// The symmetric exchanges of Gossip: see pair_exchange.hpp.

#include "engine/gossip/pair_exchange.hpp"

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
  if (!attempt_->exchange) {
    attempt_->exchange.emplace();
    attempt_->exchange->number = ++questions_;
    attempt_->exchange->priority = rng_.next();
    attempt_->exchange->proposer = true;
  }
  attempt_->exchange->life = peer.life;
  const auto codec = codec::to_wire(builder_.fbb(), coding_.codec());
  wire::ExchangeBuilder body(builder_.fbb());
  body.add_number(attempt_->exchange->number);
  body.add_word(Word::Propose);
  body.add_proposer(true);
  body.add_version(own_version_);
  body.add_priority(attempt_->exchange->priority);
  if (!codec.IsNull()) body.add_codec(codec);
  link_.send(peer.life, builder_.finish(Body::Exchange, body.Finish()));
}

// ------------------------------------------------------------ accepting

/// Accepts the proposal with the greatest priority among those that waited for this fetch. The others keep waiting.
/// False if there is none.
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
  attempt_->exchange = PairExchange{.life = life, .number = proposal.number, .priority = proposal.priority, .stage = PairExchange::Stage::kAgreed};
  agreed_[life] = proposal.number;
  unsettled_.erase(life);
  say(life, proposal.number, Word::Agree, false);
  begin_reading(peer);
}

void Gossip::on_propose(base::Peer from, const wire::Exchange& said) {
  const PeerEntry* const peer = peers_.of_life(from);
  if (peer == nullptr) return decline(from, said.number(), true, fmt::format("\"{}\" does not have this node among its peers", peers_.self().name));
  if (!symmetric()) return decline(from, said.number(), true, fmt::format("\"{}\" has `exchange: pull`", peers_.self().name));
  const auto codec = codec::from_wire(said.codec());
  const codec::Spec theirs = codec.ok() && codec.value() != nullptr ? codec.value()->spec() : codec::Spec();
  if (!codec.ok() || theirs != config_.compression) {
    return decline(from, said.number(), true,
                   fmt::format("\"{}\" has `compression: {}`, this node {}", peers_.self().name, codec::to_text(config_.compression),
                               codec.ok() ? codec::to_text(theirs) : "an unknown one"));
  }
  // Copies of a proposal, and older ones, may come late, by another transport.
  const auto held = held_.find(from);
  const auto agreed = agreed_.find(from), accepted = accepted_.find(from);
  if (held != held_.end() && said.number() < held->second.number) return;
  if (agreed != agreed_.end() && said.number() <= agreed->second && exchange_with(from, said) == nullptr) {
    const bool was_valid = accepted != accepted_.end() && said.number() <= accepted->second;
    return was_valid ? void() : say(from, said.number(), Word::Withdraw, false);
  }
  held_[from] = {said.number(), said.version(), said.priority()};
  settle_proposal(from);
}

/// Decides about a proposal that has just arrived: Wait, Agree, Decline, or no answer.
void Gossip::settle_proposal(base::Peer from) {
  const Proposal proposal = held_.at(from);
  if (!fetching_) return say(from, proposal.number, Word::Wait, false);
  held_.erase(from);
  if (attempt_ && attempt_->exchange) {
    const PairExchange& own = *attempt_->exchange;
    if (own.life == from && !own.proposer && own.number == proposal.number) return say(from, own.number, Word::Agree, false);  // the answer was lost
    const bool greater = proposal.priority != own.priority ? proposal.priority > own.priority : peers_.of_life(from)->node.name > peers_.self().name;
    const bool yields = !own.is_agreed() && (own.stage == PairExchange::Stage::kNoted || greater);
    if (!yields && !own.is_agreed() && own.life == from) return;  // it has this node's proposal, which wins
    if (!yields) return decline(from, proposal.number, false, fmt::format("\"{}\" is in another exchange", peers_.self().name));
    withdraw();
  }
  drop_pieces();
  accept(*peers_.of_life(from), from, proposal);
}

// ------------------------------------------------------------ until the commit

/// The exchange that a message of the partner belongs to, or null.
PairExchange* Gossip::exchange_with(base::Peer from, const wire::Exchange& said) {
  if (!attempt_ || !attempt_->exchange) return nullptr;
  PairExchange& exchange = *attempt_->exchange;
  return exchange.life == from && exchange.number == said.number() && exchange.proposer != said.proposer() ? &exchange : nullptr;
}

void Gossip::on_exchange(base::Peer from, const wire::Exchange& said) {
  switch (said.word()) {
    case Word::Propose:
      return on_propose(from, said);
    case Word::Wait:
      if (PairExchange* const exchange = exchange_with(from, said)) {
        if (!exchange->is_agreed()) exchange->stage = PairExchange::Stage::kNoted;
        attempt_->silent_since = clock_.now();
      }
      return;
    case Word::Agree:
      return on_agree(from, said);
    case Word::Decline:
      if (PairExchange* const exchange = exchange_with(from, said); exchange != nullptr && !exchange->is_agreed()) {
        const std::string why = said.why() != nullptr ? said.why()->str() : std::string();
        attempt_->exchange.reset();
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
  PairExchange* const exchange = exchange_with(from, said);
  if (exchange == nullptr) return say(from, said.number(), Word::Withdraw, true);
  if (exchange->is_agreed()) return;
  exchange->stage = PairExchange::Stage::kAgreed;
  attempt_->version = said.version();
  attempt_->silent_since = clock_.now();
  begin_reading(*attempted());
}

/// The partner's version has arrived completely.
void Gossip::have_whole() {
  PairExchange& exchange = *attempt_->exchange;
  const bool theirs = std::exchange(exchange.stage, PairExchange::Stage::kWhole) == PairExchange::Stage::kOnlyTheirs;
  if (theirs) return commit();
  if (exchange.proposer) return;
  exchange.said_ready = clock_.now();
  say(exchange.life, exchange.number, Word::Ready, false);
}

void Gossip::on_ready(base::Peer from, const wire::Exchange& said) {
  if (PairExchange* const exchange = exchange_with(from, said)) {
    if (!exchange->proposer || !exchange->is_agreed()) return;  // a repetition
    if (exchange->stage == PairExchange::Stage::kWhole) return commit();
    exchange->stage = PairExchange::Stage::kOnlyTheirs;
    return;
  }
  const auto before = committed_.find(from);
  const bool valid = before != committed_.end() && before->second == said.number();
  say(from, said.number(), valid ? Word::Commit : Word::Withdraw, true);
}

void Gossip::commit() {
  const PairExchange exchange = *attempt_->exchange;
  committed_[exchange.life] = exchange.number;
  say(exchange.life, exchange.number, Word::Commit, true);
  ++tally_.valid;
  succeed();
}

void Gossip::on_commit(base::Peer from, const wire::Exchange& said) {
  if (const PairExchange* const exchange = exchange_with(from, said); exchange != nullptr && exchange->awaits_word()) {
    accepted_[from] = exchange->number;
    ++tally_.valid;
    return succeed();
  }
  const auto before = accepted_.find(from);
  if (before == accepted_.end() || before->second != said.number()) say(from, said.number(), Word::Withdraw, false);
}

// ------------------------------------------------------------ giving up

/// Ends the attempt's exchange, if it has one, and sends Withdraw to the partner.
void Gossip::withdraw() {
  if (!attempt_ || !attempt_->exchange) return;
  const PairExchange exchange = *attempt_->exchange;
  attempt_->exchange.reset();
  if (exchange.awaits_word()) {
    ++tally_.unsettled;
    unsettled_[exchange.life] = exchange.number;
  }
  say(exchange.life, exchange.number, Word::Withdraw, exchange.proposer);
}

void Gossip::on_withdraw(base::Peer from, const wire::Exchange& said) {
  const auto held = held_.find(from);
  if (said.proposer() && held != held_.end() && held->second.number == said.number()) held_.erase(held);
  if (exchange_with(from, said) != nullptr) {
    attempt_->exchange.reset();
    return skip(fmt::format("\"{}\" withdrew from the exchange", attempt_->peer));
  }
  const auto valid = committed_.find(from);
  if (said.proposer() || valid == committed_.end() || valid->second != said.number()) return;
  committed_.erase(valid);
  ++tally_.half;
  --tally_.valid;
  const PeerEntry* const peer = peers_.of_life(from);
  base::log_warn("gossip: {} has averaged with {}, which withdrew at the same time: the mean of the two has changed", peers_.self().name,
                 peer != nullptr ? peer->node.name : "a peer");
}

/// Continues an exchange after the partner has connected again, or by another transport: messages may have been lost.
void Gossip::exchange_again(PeerEntry& peer) {
  PairExchange& exchange = *attempt_->exchange;
  if (exchange.life != peer.life) {
    if (!exchange.awaits_word()) {
      attempt_->exchange.reset();
      return skip(fmt::format("\"{}\" was restarted", attempt_->peer));
    }
    return skip(fmt::format("\"{}\" was restarted before it confirmed the exchange", attempt_->peer));
  }
  if (!exchange.is_agreed()) return propose(peer);
  if (exchange.stage != PairExchange::Stage::kWhole) {
    drop_pieces();
    attempt_->described = false;
    begin_reading(peer);
  } else if (!exchange.proposer) {
    say(exchange.life, exchange.number, Word::Ready, false);
  }
}

}  // namespace mv::gossip
