#include "engine/gossip/gossip.hpp"

#include <algorithm>

#include "base/log.hpp"
#include "codec/wire.hpp"

namespace mv::gossip {

namespace {
/// A peer may be silent for this fraction, 1 / kSilences, of the time-out.
constexpr int kSilences = 3;
/// How many times in a time-out an acceptor repeats Ready.
constexpr int kUrges = 12;
/// How many times newer versions may overtake the version being read before the peer is given up. After
/// kMostMappedRestarts of them, the reads use messages instead of mapped memory, because the peer then holds the
/// version.
constexpr int kMostRestarts = 8, kMostMappedRestarts = 3;
/// Bytes of mapped memory to copy before other pending work runs.
constexpr uint64_t kStepBytes = 4 * kChunkBytes;
}  // namespace

Gossip::Gossip(const base::Clock& clock, base::Link& link, const Config& config, Node self, uint64_t seed, Publisher& own, Hooks hooks)
    : clock_(clock),
      link_(link),
      config_(config),
      hooks_(std::move(hooks)),
      peers_(self, config.topology, config.seed.value_or(0)),
      own_(own),
      serving_(clock, link, own, config.timeout),
      rng_(seed, self.name),
      coding_(codec::make(config.compression)) {}

base::Status Gossip::add_peer(const Node& node) {
  if (auto status = peers_.add(node); !status.ok()) return status;
  if (const auto found = connected_.find(node.address()); found != connected_.end()) peers_.connected(found->second, node.address(), clock_.now());
  return {};
}

base::Status Gossip::remove_peer(const std::string& name) {
  const auto removed = peers_.remove(name);
  if (!removed.ok()) return removed.status();
  held_.erase(removed.value().life);
  if (attempt_ && attempt_->peer == name) skip(fmt::format("\"{}\" was removed", name));
  return {};
}

void Gossip::note_disagreement(const std::string& peer, double disagreement) {
  if (PeerEntry* const entry = peers_.find(peer)) entry->disagreement = disagreement;
}

// ------------------------------------------------------------ one fetch

void Gossip::fetch(uint64_t round, std::vector<ArraySpec> own) {
  fetching_ = true;
  round_ = round;
  own_parts_ = std::move(own);
  deadline_ = base::after(clock_.now(), config_.timeout);
  tried_.clear();
  last_failure_.clear();
  somebody_failed_ = false;
  own_reader_ = own_.reader();
  own_version_ = own_reader_ != nullptr ? own_reader_->newest() : 0;
  result_ = {};
  if (symmetric()) serving_.hold_for_exchange(own_reader_, own_version_);
  if (!symmetric() || !accept_held()) try_next();
}

void Gossip::try_next() {
  PeerEntry* const peer = peers_.choose_next(round_, tried_, clock_.now(), rng_);
  if (peer == nullptr) return finish("", last_failure_.empty() ? "this node has no peers" : last_failure_);
  attempt_.emplace(Attempt{});
  attempt_->peer = peer->node.name;
  attempt_->silent_since = clock_.now();
  attempt_->heard = fetched_bytes_;
  auto tried = tried_;
  tried.insert(attempt_->peer);
  attempt_->last = !peers_.has_next(round_, tried);
  if (peer->life != base::kNobody) {
    // A machine that dies silently leaves its connections open; only dialing finds a new process there.
    if (std::exchange(peer->doubted, false)) link_.dial(peer->node.address());
    return begin_asking(*peer);
  }
  if (std::exchange(peer->dialing, true)) return;
  link_.dial(peer->node.address());
}

void Gossip::begin_asking(PeerEntry& peer) { symmetric() ? propose(peer) : begin_reading(peer); }

void Gossip::begin_reading(PeerEntry& peer) {
  // Within a machine no compression is needed. But in an exchange, both sides must compute the same difference.
  const bool may_map = hooks_.mapped && !(symmetric() && coding_.codec() != nullptr) && attempt_->restarts < kMostMappedRestarts;
  attempt_->mapping = may_map ? hooks_.mapped(peer.life) : nullptr;
  if (attempt_->mapping != nullptr) return begin_copying();
  ask(peer.life, attempt_->version, 0, kChunkBytes);
}

/// Starts over from the beginning of the newest version.
void Gossip::start_over() {
  PeerEntry* const peer = attempted();
  if (attempt_->version != 0) return skip(fmt::format("\"{}\" published again during the exchange", attempt_->peer));
  if (++attempt_->restarts > kMostRestarts) return skip(fmt::format("\"{}\" publishes faster than it can be read", attempt_->peer));
  drop_pieces();
  attempt_->described = false;
  attempt_->asked = 0;
  begin_reading(*peer);
}

void Gossip::fail(const std::string& why, Fault fault) {
  somebody_failed_ = true;
  if (PeerEntry* const peer = attempted()) {
    peer->score.failed(clock_.now());
    ++peer->failed;
    peer->problem = why;
    peer->dialing = false;  // the next attempt may dial again
    peer->doubted = fault == Fault::kSilent;
    const bool told = fault == Fault::kRefused && std::exchange(peer->told_of, peer->last_life) == peer->last_life;
    if (fault == Fault::kRefused && !told) base::log_warn("gossip: {} takes no snapshots of {}: {}", peers_.self().name, peer->node.name, why);
  }
  skip(why);
}

/// Continues with another peer, without a penalty for this one.
void Gossip::skip(const std::string& why) {
  last_failure_ = why;
  tried_.insert(attempt_->peer);
  withdraw();
  drop_pieces();
  attempt_.reset();
  try_next();
}

void Gossip::finish(std::string peer, std::string why) {
  drop_pieces();
  attempt_.reset();
  fetching_ = false;
  deadline_ = base::kNever;
  if (!peer.empty()) {
    told_alone_ = false;
  } else if ((somebody_failed_ || !symmetric()) && !peers_.all().empty() && !std::exchange(told_alone_, true)) {  // not if unpaired
    base::log_warn("gossip: {} continues alone: {}", peers_.self().name, why);
  }
  result_ = {std::move(peer), std::move(why), own_reader_, own_version_};
  hooks_.on_done();
}

/// Forgets the requested pieces, and discards what still arrives of them.
void Gossip::drop_pieces() {
  if (!attempt_) return;
  for (auto& [number, piece] : attempt_->pieces)
    if (piece.sink != nullptr) piece.sink->discard();
  attempt_->pieces.clear();
}

bool Gossip::begin_receive_buffer(Description description) {
  const base::Status status = receive_buffer_.begin(std::move(description), own_parts_);
  attempt_->described = status.ok();
  if (!status.ok()) fail(fmt::format("the snapshot of \"{}\" was rejected: {}", attempt_->peer, status.text()), Fault::kRefused);
  return status.ok();
}

void Gossip::coded_piece_arrived(uint64_t first, uint64_t count, std::span<const std::byte> encoded) {
  fetched_bytes_ += encoded.size();
  if (const auto status = unpack(first, count, encoded); !status.ok()) {
    return fail(fmt::format("the snapshot of \"{}\" was rejected: {}", attempt_->peer, status.text()), Fault::kRefused);
  }
  piece_arrived(first, count);
}

base::Status Gossip::unpack(uint64_t first, uint64_t count, std::span<const std::byte> encoded) {
  const auto room = receive_buffer_.room(first, count);
  if (coding_.codec() == nullptr) {
    if (encoded.data() != room.data()) std::ranges::copy(encoded, room.begin());
    return {};
  }
  const auto& parts = receive_buffer_.description().parts;
  if (auto status = coding_.decode(parts, first, encoded, room); !status.ok() || !symmetric()) return status;
  if (auto status = receive_buffer_.check(first, count); !status.ok()) return status;  // before this node's values are added
  std::vector<std::byte> own(count);
  if (!own_reader_->read(own_version_, first, own)) return base::error(MV_ESTATE, "this node published again during the exchange");
  coding_.correct(parts, first, own, room);
  return {};
}

/// These bytes are in the receive buffer.
void Gossip::piece_arrived(uint64_t first, uint64_t count) { piece_checked(count, receive_buffer_.check(first, count)); }

void Gossip::piece_checked(uint64_t count, const base::Status& status) {
  attempt_->silent_since = clock_.now();
  if (!status.ok()) return fail(fmt::format("the snapshot of \"{}\" was rejected: {}", attempt_->peer, status.text()), Fault::kRefused);
  receive_buffer_.arrived(count);
  if (!receive_buffer_.whole()) {
    if (attempt_->mapping == nullptr) ask_more(attempted()->life);
    return;
  }
  if (attempt_->exchange) return have_whole();
  succeed();
}

void Gossip::succeed() {
  PeerEntry& peer = *attempted();
  peer.score.succeeded(clock_.now());
  ++peer.fetched;
  peer.clock = receive_buffer_.description().clock;
  peer.loss = receive_buffer_.description().loss;
  peer.problem.clear();
  finish(peer.node.name, "");
}

// ------------------------------------------------------------ by mapped memory

void Gossip::begin_copying() {
  const auto& mapping = *attempt_->mapping;
  attempt_->asked = 0;  // a request may be in flight, if the memory has just been mapped
  const uint64_t version = attempt_->version != 0 ? attempt_->version : mapping.newest();
  if (version == 0) return skip(fmt::format("\"{}\" has published nothing yet", attempt_->peer));
  if (auto description = mapping.describe(version)) {
    if (!begin_receive_buffer(std::move(*description))) return;
    if (receive_buffer_.whole()) return piece_arrived(0, 0);
  }
  want_more();  // also if that version is just gone
}

void Gossip::want_more() {
  if (!std::exchange(more_wanted_, true)) hooks_.on_more();
}

void Gossip::go_on() {
  more_wanted_ = false;
  if (!attempt_ || attempt_->mapping == nullptr || attempted() == nullptr) return;
  if (!attempt_->described) return start_over();
  const uint64_t version = receive_buffer_.description().version, bytes = receive_buffer_.description().bytes;
  const uint64_t end = std::min(bytes, attempt_->asked + kStepBytes);
  while (attempt_ && attempt_->asked < end) {
    const uint64_t first = attempt_->asked, count = std::min(kChunkBytes / 4, end - first);
    base::Status status;
    const auto copy = [&](const std::byte* from) { status = receive_buffer_.copy(first, count, from); };
    if (!attempt_->mapping->read(version, first, count, copy)) return start_over();
    attempt_->asked += count;
    piece_checked(count, status);
    if (!fetching_) return;
  }
  if (attempt_ && attempt_->mapping != nullptr && attempt_->asked < bytes) want_more();  // else an exchange waits for its peer's word
}

// ------------------------------------------------------------ by messages

void Gossip::ask(base::Peer to, uint64_t version, uint64_t first, uint64_t count) {
  const uint64_t number = ++questions_;
  attempt_->pieces[number] = {first, count, nullptr};
  attempt_->asked = first + count;
  const auto codec = codec::to_wire(builder_.fbb(), coding_.codec());
  wire::FetchBuilder body(builder_.fbb());
  body.add_number(number);
  body.add_version(version);
  body.add_first(first);
  body.add_count(count);
  if (!codec.IsNull()) body.add_codec(codec);
  link_.send(to, builder_.finish(wire::Body::Fetch, body.Finish()));
}

void Gossip::ask_more(base::Peer to) {
  const Description& whole = receive_buffer_.description();
  while (attempt_->pieces.size() < kWindow && attempt_->asked < whole.bytes)
    ask(to, whole.version, attempt_->asked, std::min(kChunkBytes, whole.bytes - attempt_->asked));
}

/// The destination of an answer's bytes; null for an answer that is not expected any more or does not match its
/// request.
base::SinkRef Gossip::place(base::Peer from, const wire::Fetched& fetched, size_t bytes) {
  const PeerEntry* const peer = attempted();
  if (peer == nullptr || peer->life != from) return nullptr;
  const auto found = attempt_->pieces.find(fetched.number());
  if (found == attempt_->pieces.end() || found->second.sink != nullptr) return nullptr;
  Request& piece = found->second;
  if (!attempt_->described) {
    if (piece.first != 0 || fetched.first() != 0 || (attempt_->version != 0 && fetched.version() != attempt_->version)) return nullptr;
    Description description{fetched.version(), fetched.clock(), fetched.loss(), fetched.bytes(), {}};
    if (fetched.parts() != nullptr)
      for (const auto* part : *fetched.parts()) description.parts.push_back({part->count(), static_cast<mv_dtype>(part->dtype()), part->shape()});
    if (!begin_receive_buffer(std::move(description))) return nullptr;
    attempt_->asked = piece.count = std::min(piece.count, fetched.bytes());
  }
  const uint64_t expected = coding_.encoded_bytes(receive_buffer_.description().parts, piece.first, piece.count);
  if (fetched.version() != receive_buffer_.description().version || fetched.first() != piece.first || bytes != expected) {
    fail(fmt::format("the snapshot of \"{}\" was rejected: it sent {} bytes from offset {}, but {} from offset {} were requested", attempt_->peer, bytes,
                     fetched.first(), expected, piece.first),
         Fault::kRefused);
    return nullptr;
  }
  if (coding_.codec() == nullptr) {
    piece.sink = base::Sink::into(receive_buffer_.room(piece.first, piece.count));
  } else {
    const std::shared_ptr<std::byte[]> memory(new std::byte[bytes]);
    piece.sink = base::Sink::into({memory.get(), bytes}, memory);
  }
  return piece.sink;
}

void Gossip::take_absence(base::Peer from, const wire::Fetched& fetched) {
  const PeerEntry* const peer = attempted();
  if (peer == nullptr || peer->life != from || !attempt_->pieces.contains(fetched.number())) return;
  if (fetched.absence() == wire::Absence::Unpublished) return skip(fmt::format("\"{}\" has published nothing yet", attempt_->peer));
  attempt_->silent_since = clock_.now();
  start_over();
}

void Gossip::on_message(base::Peer from, const wire::Message& message, std::span<const std::byte> payload) {
  if (message.body_type() == wire::Body::Fetch) {
    // A partner that still fetches is not silent.
    if (attempt_ && attempt_->exchange && attempt_->exchange->stage == PairExchange::Stage::kWhole && attempt_->exchange->life == from) attempt_->silent_since = clock_.now();
    return serving_.on_fetch(from, message);
  }
  if (message.body_type() == wire::Body::Inquire) return answer_inquire(from, *message.body_as_Inquire());
  if (message.body_type() == wire::Body::Exchange) return on_exchange(from, *message.body_as_Exchange());
  if (message.body_type() != wire::Body::Fetched) return;
  const wire::Fetched& fetched = *message.body_as_Fetched();
  if (fetched.absence() != wire::Absence::None) return take_absence(from, fetched);
  const base::SinkRef sink = place(from, fetched, payload.size());
  if (sink == nullptr) return;
  const auto piece = attempt_->pieces.extract(fetched.number());
  coded_piece_arrived(piece.mapped().first, piece.mapped().count, payload);
}

/// Answers `polyverso status`.
void Gossip::answer_inquire(base::Peer to, const wire::Inquire& inquire) {
  if (!hooks_.state_text) return;
  const std::string text = hooks_.state_text(inquire.json());
  const auto payload = base::Payload::copy(std::as_bytes(std::span(text)));
  link_.send(to, builder_.finish(Body::Overview, wire::CreateOverview(builder_.fbb(), inquire.number()), payload));
}

base::SinkRef Gossip::on_header(base::Peer from, const wire::Message& message, size_t bytes) {
  const bool answer = message.body_type() == wire::Body::Fetched && message.body_as_Fetched()->absence() == wire::Absence::None;
  const base::SinkRef sink = answer ? place(from, *message.body_as_Fetched(), bytes) : nullptr;
  return sink != nullptr ? sink : base::Sink::nowhere();
}

void Gossip::on_payload(base::Peer, const wire::Message& message, base::Sink& sink) {
  if (sink.discards() || message.body_type() != wire::Body::Fetched || !attempt_) return;
  const wire::Fetched& fetched = *message.body_as_Fetched();
  const auto found = attempt_->pieces.find(fetched.number());
  if (found == attempt_->pieces.end() || found->second.sink.get() != &sink) return;
  const Request piece = found->second;
  attempt_->pieces.erase(found);
  coded_piece_arrived(piece.first, piece.count, sink.memory());
}

// ------------------------------------------------------------ network events

void Gossip::on_connected(base::Peer life, const std::string& address) {
  connected_[address] = life;
  if (const PeerEntry* const known = peers_.at_address(address); known != nullptr && known->last_life != life) forget(known->last_life);
  PeerEntry* const peer = peers_.connected(life, address, clock_.now());
  // It may have been sent before the connection broke.
  if (const auto given_up = unsettled_.find(life); given_up != unsettled_.end()) say(life, given_up->second, wire::Word::Withdraw, false);
  if (peer == nullptr || !attempt_ || attempt_->peer != peer->node.name || attempt_->mapping != nullptr) return;
  if (attempt_->exchange) return exchange_again(*peer);
  // Messages in flight may be lost, or be overtaken by messages on another transport.
  drop_pieces();
  attempt_->described = false;
  begin_asking(*peer);
}

/// A peer may connect again in the same life, and then its words still count.
void Gossip::forget(base::Peer life) {
  for (auto* numbers : {&committed_, &accepted_, &agreed_, &unsettled_}) numbers->erase(life);
}

void Gossip::on_dial_failed(const std::string& address, const base::Status& why) {
  PeerEntry* const peer = peers_.at_address(address);
  if (peer == nullptr) return;
  peer->dialing = false;
  const bool disagrees = why.code() == MV_EAUTH || why.code() == MV_EVERSION || why.code() == MV_EPROTOCOL;
  if (disagrees && !std::exchange(peer->told_of_way, true))
    base::log_warn("gossip: {} can't connect to {}: {}", peers_.self().name, peer->node.name, why.text());
  if (attempt_ && attempt_->peer == peer->node.name && peer->life == base::kNobody) fail(why.text(), Fault::kSilent);
}

void Gossip::on_lost(base::Peer life, const base::Status& why) {
  serving_.on_lost(life);
  std::erase_if(connected_, [life](const auto& known) { return known.second == life; });
  held_.erase(life);
  PeerEntry* const peer = peers_.of_life(life);
  if (peer == nullptr) return forget(life);
  peer->life = base::kNobody;
  if (attempt_ && attempt_->peer == peer->node.name) fail(why.text(), Fault::kSilent);
}

// ------------------------------------------------------------ time

base::Nanos Gossip::next_deadline() const {
  if (!attempt_) return serving_.next_deadline();
  const base::Nanos silent = std::min({deadline_, silence_ends(), serving_.next_deadline()});
  const bool urges = attempt_->exchange && attempt_->exchange->awaits_word();
  return urges ? std::min(silent, attempt_->exchange->said_ready + config_.timeout / kUrges) : silent;
}

void Gossip::tick() {
  const base::Nanos now = clock_.now();
  serving_.tick();
  if (!attempt_ || now < next_deadline()) return;
  if (now >= deadline_) return run_out();
  const auto silence = std::chrono::duration_cast<std::chrono::milliseconds>(config_.timeout / kSilences).count();
  if (now >= silence_ends()) {
    if (hears_more()) {
      attempt_->silent_since = now;
      return;
    }
    if (attempt_->exchange && attempt_->exchange->stage == PairExchange::Stage::kNoted) return skip(fmt::format("\"{}\" began no exchange of its own for {} ms", attempt_->peer, silence));
    return fail(fmt::format("\"{}\" was silent for {} ms", attempt_->peer, silence), Fault::kSilent);
  }
  attempt_->exchange->said_ready = now;
  say(attempt_->exchange->life, attempt_->exchange->number, wire::Word::Ready, false);
}

/// When the peer counts as silent, if nothing more arrives from it.
base::Nanos Gossip::silence_ends() const {
  return attempt_->last && !symmetric() ? base::kNever : attempt_->silent_since + config_.timeout / kSilences;
}

/// Whether bytes of a piece have arrived since the last call.
bool Gossip::hears_more() {
  uint64_t heard = fetched_bytes_;
  for (const auto& [number, piece] : attempt_->pieces) heard += piece.sink != nullptr ? piece.sink->received() : 0;
  return std::exchange(attempt_->heard, heard) != heard;
}

/// The whole time-out has passed.
void Gossip::run_out() {
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(config_.timeout).count();
  const std::string why = fmt::format("no complete snapshot within {} ms; the last peer asked was \"{}\"", milliseconds, attempt_->peer);
  PeerEntry* const peer = attempted();
  if (peer != nullptr && !(attempt_->exchange && attempt_->exchange->stage == PairExchange::Stage::kNoted)) {
    somebody_failed_ = true;
    peer->score.failed(clock_.now());
    ++peer->failed;
    peer->problem = why;
    peer->dialing = false;
    peer->doubted = true;
  }
  withdraw();
  finish("", why);
}

}  // namespace mv::gossip
