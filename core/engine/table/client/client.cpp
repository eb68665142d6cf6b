#include "engine/table/client/client.hpp"

#include <algorithm>
#include <cstring>

#include "codec/wire.hpp"
#include "engine/table/client/chunk.hpp"
#include "engine/table/spec_wire.hpp"
#include "shard/updater/updater.hpp"

namespace mv::table {

using namespace std::chrono_literals;

namespace {
/// In sync mode, adds up to this size per server travel with their header. Larger ones are only offered.
constexpr uint64_t kEagerBytes = 16 << 10;
/// For sliced tables: their changes wait until less is in flight, so that fewer of them can't be recalled when
/// something urgent comes.
constexpr size_t kSlicesUnderWay = 4;
/// How often a server that has no memory for its part of a change is asked again if others have applied theirs: a
/// change must not be applied in part.
constexpr int kMostRefusals = 3;
/// How long a caller whose deadline has passed waits for the servers to report what became of its call.
constexpr base::Nanos kLastWord = 1s;
}  // namespace

// ---- beginning

Client::Client(const base::Clock& clock, rpc::Client& rpc, rpc::Client& processes, base::Pool& pool)
    : servers_(clock, rpc, processes, pool),
      change_form_(wire::Body::Change, [](flatbuffers::FlatBufferBuilder& fbb) { return wire::CreateChange(fbb); }),
      get_form_(wire::Body::Get, [](flatbuffers::FlatBufferBuilder& fbb) { return wire::CreateGet(fbb); }) {}
Client::~Client() = default;

void Client::begin(Request&& request) {
  auto op = std::make_shared<TableCall>(*this, std::move(request));
  Request& want = op->request;
  TableView& table = *want.table;
  const bool change = want.kind == OpKind::kChange;
  if (!change && want.operation != nullptr && want.operation->is_pointless())
    return want.operation->complete(base::error(MV_ECANCELED, "table \"{}\": another part of the call has failed", table.spec.name));
  count(*op);
  if (change) op->change_id = changes_.begin();
  if (want.operation != nullptr) {
    if (over_.empty()) over_.emplace_front();
    over_.front() = op;
    waited_for_.splice(waited_for_.end(), over_, over_.begin());
    op->place = std::prev(waited_for_.end());
    if (const base::Operation* const whole = want.operation->whole(); whole != want.operation.get()) parts_.emplace(op->whole = whole, op.get());
    want.operation->begin(op);
  }

  const bool replaces = change && want.write == wire::Write::Add && table.spec.updater.name == shard::kReplacing;
  std::vector<ChunkRange> pieces = !want.many.empty() ? std::vector<ChunkRange>{{.server = want.server, .count = 1, .ids = {}, .from = {}}}
                              : want.all ? plan_all(table.spec, servers_.peers.size(), want.skip)
                                       : plan_rows(table.spec, servers_.peers.size(), want.rows, want.skip, replaces && !op->merged());
  // Other servers than those of the rows need the message only if it counts, waits for gates, or replaces the other
  // rows.
  if (!op->counted() && !op->merged() && !want.waits_only && !replaces) std::erase_if(pieces, [](const ChunkRange& piece) { return piece.count == 0 && piece.ids.empty(); });
  if (change && want.codec != nullptr) place_encoded(pieces, *want.codec);
  if (want.keeps_encoded) place_answers(pieces, *want.codec);
  op->open = pieces.size();
  if (pieces.empty()) return settle(op);
  if (const base::Nanos deadline = want.operation != nullptr ? want.operation->deadline() : base::kNever; deadline != base::kNever) {
    op->timer = servers_.timers.set(deadline, op);
    op->has_timer = true;
  }
  op->chunks.reserve(pieces.size());
  const auto send = [&](const std::shared_ptr<Chunk>& chunk) { change ? send_change(op, chunk) : send_get(op, chunk); };
  if (pieces.size() == 1) {
    const auto chunk = std::make_shared<Chunk>(*this, op, std::move(pieces.front()));
    op->chunks.push_back(chunk);
    send(chunk);
  } else {
    std::vector<std::shared_ptr<Chunk>> chunks;
    for (ChunkRange& piece : pieces) {
      chunks.push_back(std::make_shared<Chunk>(*this, op, std::move(piece)));
      op->chunks.push_back(chunks.back());
    }
    std::ranges::for_each(chunks, send);
  }
  op->is_sent = true;
  if (op->open > 0 && !op->error.ok()) tell_loss(op);
}

/// Decides whether servers count the call and whether it waits for other workers, and gives it its numbers.
void Client::count(TableCall& op) {
  Request& want = op.request;
  TableView& table = *want.table;
  const bool change = want.kind == OpKind::kChange;
  op.gated = change ? want.write == wire::Write::Add && table.consistency == shard::Consistency::kSync : want.gated && table.consistency != shard::Consistency::kAsync;
  if (op.gated && table.consistency == shard::Consistency::kSync) op.counting = TableCall::Counting::kSync;
  if (change && want.write == wire::Write::Add && table.consistency == shard::Consistency::kMerge) op.counting = TableCall::Counting::kMerge;
  if (op.counted() || op.merged()) entry_.before(want.table, change ? wire::Counted::Add : wire::Counted::Get);
  op.is_provisional = table.is_newcomer;
  op.numbered = {op.merged() ? table.clock.fetch_add(1, std::memory_order_relaxed) : 0, table.round, table.index};
  if (op.counted()) ++(change ? table.index : table.round);
  if (op.counted() && !change) table.adds_at_get = table.index;
  if (!change && table.consistency == shard::Consistency::kMerge) {
    want.clock = table.clock;  // only now it counts all earlier adds
    if (want.gated) table.adds_at_get.store(want.clock, std::memory_order_relaxed);
  }
  for (ManyPart& part : want.many) {
    part.clock = part.table->clock;
    if (part.table->consistency == shard::Consistency::kMerge) part.table->adds_at_get.store(part.clock, std::memory_order_relaxed);
    part.is_provisional = part.table->is_newcomer;
  }
}

/// Queues the call behind the earlier ones of its table. In sync mode adds, too, wait at the servers for other workers,
/// so all calls leave in program order, which is the same on every worker.
void Client::set_order(rpc::Call& call, const TableView& table, size_t server, int64_t priority) {
  if (table.consistency == shard::Consistency::kSync) return;
  call.queue = table.queue != 0 ? table.queue : uint64_t{table.numbers[server]} + 1;
  call.priority = priority;
}

base::PayloadRef Client::payload_of(const TableCall& op, const ChunkRange& piece) {
  const shard::Spec& spec = op.request.table->spec;
  const base::PayloadRef& source = op.request.source;
  if (piece.ids.empty()) {
    if (piece.count == 0) return nullptr;
    const codec::Codec* const codec = op.request.codec.get();
    const auto values = codec != nullptr ? source->bytes().subspan(piece.encoded_at, codec->encoded_bytes(piece.count))
                                         : source->bytes().subspan(piece.offset * spec.element_bytes(), piece.count * spec.element_bytes());
    return source->is_lent() ? base::Payload::lent(values) : base::Payload::kept(values, source);
  }
  const size_t ids_bytes = piece.ids.size() * sizeof(int64_t);
  const size_t row_bytes = op.request.write == wire::Write::Erase ? 0 : spec.row_bytes();
  const base::Pool::Block block = servers_.pool.take(ids_bytes + piece.ids.size() * row_bytes);
  std::memcpy(block.bytes.data(), piece.ids.data(), ids_bytes);
  if (row_bytes == 0) return base::Payload::kept(block.bytes, block.memory);
  std::byte* const to = block.bytes.data() + ids_bytes;
  const std::byte* const from = source->bytes().data();
  if (piece.contiguous())
    std::memcpy(to, from + piece.from.front() * row_bytes, piece.from.size() * row_bytes);
  else
    for (size_t i = 0; i < piece.from.size(); ++i) std::memcpy(to + i * row_bytes, from + piece.from[i] * row_bytes, row_bytes);
  return base::Payload::kept(block.bytes, block.memory);
}

void Client::send_change(const TableCallRef& op, const std::shared_ptr<Chunk>& chunk, bool again) {
  const Request& want = op->request;
  const ChunkRange& piece = chunk->piece;
  const bool offer = op->counted() && want.source->size() > kEagerBytes && chunk->bytes() > 0;
  rpc::Call call;
  call.pending = chunk;
  call.wants_answer = false;
  call.overtakes = again;  // later calls wait for it
  set_order(call, *want.table, piece.server, want.priority);
  if (want.table->spec.is_sliced()) call.window_bytes = kSlicesUnderWay * shard::kSliceBytes;
  if (!offer && !piece.ids.empty() && chunk->payload == nullptr) {
    // Rows are gathered piece by piece: all at once would block the loop, and take their memory twice.
    chunk->makes_payload = true;
    call.cost = piece.ids.size() * sizeof(int64_t) + chunk->bytes();
    call.make = [this, chunk = chunk.get()] {  // the call itself keeps it alive
      if (std::exchange(chunk->makes_payload, false)) chunk->payload = payload_of(*chunk->op, chunk->piece);
      return change_frame(*chunk, false);
    };
  } else if (want.filling != nullptr && !offer && chunk->bytes() > 0 && chunk->payload == nullptr) {
    call.cost = chunk->bytes();
    call.make = [this, chunk = chunk.get()] {
      chunk->payload = payload_of(*chunk->op, chunk->piece);
      const size_t begin = chunk->piece.offset * chunk->op->request.table->spec.element_bytes();
      chunk->op->request.filling->wait_for(begin, begin + chunk->bytes());
      return change_frame(*chunk, false);
    };
  } else {
    if (chunk->payload == nullptr) chunk->payload = payload_of(*op, piece);
    if (offer) call.offer = chunk->payload;
    if (op->is_provisional)
      call.make = [this, chunk = chunk.get(), offer] { return change_frame(*chunk, offer); };
    else
      call.frame = change_frame(*chunk, offer);
    call.cost = offer ? 0 : !op->is_provisional ? call.frame.bytes() : chunk->payload != nullptr ? chunk->payload->size() : 0;
  }
  send(*op, piece.server, std::move(call));
}

/// Sends a call, or keeps it if calls on its tables wait for the entry of a worker.
void Client::send(const TableCall& op, size_t server, rpc::Call&& call) {
  const Request& want = op.request;
  const bool is_ordered = want.kind == OpKind::kChange || op.counted();
  const auto is_kept = [&](const TableView& table) { return is_ordered ? entry_.keeps(table) : op.gated && entry_.has_kept(table); };
  const auto part_is_kept = [&](const ManyPart& part) { return is_kept(*part.table); };
  if (!(want.many.empty() ? is_kept(*want.table) : std::ranges::any_of(want.many, part_is_kept)))
    return servers_.rpc.call(servers_.peers[server], std::move(call));
  std::vector<TableViewRef> tables;
  for (const ManyPart& part : want.many) tables.push_back(part.table);
  if (tables.empty()) tables.push_back(want.table);
  std::optional<wire::Counted> counted;
  if (op.counted() || op.merged()) counted = want.kind == OpKind::kChange ? wire::Counted::Add : wire::Counted::Get;
  entry_.keep(std::move(tables), servers_.peers[server], std::move(call), counted);
}

base::Frame Client::change_frame(const Chunk& chunk, bool offer) {
  const TableCall& op = *chunk.op;
  const ChunkRange& piece = chunk.piece;
  const uint64_t offered = offer ? chunk.payload->size() : 0;
  if (op.request.codec == nullptr)
    return change_form_.finish([&](wire::Change& change) {
      change.mutate_table(op.request.table->numbers[piece.server]);
      change.mutate_write(op.request.write);
      change.mutate_first(piece.first);
      change.mutate_count(piece.count);
      change.mutate_rows(piece.ids.size());
      change.mutate_round(op.round());
      change.mutate_index(op.index());
      change.mutate_chunks(piece.of);
      change.mutate_offered(offered);
      change.mutate_number(piece.number);
    }, offer ? nullptr : chunk.payload);
  const auto body = wire::CreateChange(servers_.builder.fbb(), op.request.table->numbers[piece.server], op.request.write, piece.first,
                                       piece.count, piece.ids.size(), op.round(), op.index(), piece.of, offered, piece.number,
                                       codec::to_wire(servers_.builder.fbb(), op.request.codec.get()));
  return servers_.builder.finish(wire::Body::Change, body, offer ? nullptr : chunk.payload);
}

base::Frame Client::many_frame(const TableCall& op) {
  const Request& want = op.request;
  std::vector<uint32_t> numbers, bytes;
  std::vector<uint64_t> clocks;
  numbers.reserve(want.many.size());
  bytes.reserve(want.many.size());
  clocks.reserve(want.many.size());
  for (const ManyPart& part : want.many) {
    numbers.push_back(part.table->numbers[want.server]);
    bytes.push_back(static_cast<uint32_t>(part.destination.size()));
    clocks.push_back(part.clock + (part.is_provisional ? part.table->first.clock : 0));
  }
  auto& fbb = servers_.builder.fbb();
  const auto body = wire::CreateGetMany(fbb, fbb.CreateVector(numbers), fbb.CreateVector(clocks), fbb.CreateVector(bytes), op.gated);
  return servers_.builder.finish(wire::Body::GetMany, body);
}

void Client::send_get(const TableCallRef& op, const std::shared_ptr<Chunk>& chunk) {
  const Request& want = op->request;
  const size_t server = want.many.empty() ? chunk->piece.server : want.server;
  rpc::Call call;
  call.pending = chunk;
  call.cost = chunk->wire_bytes();
  const bool is_provisional = op->is_provisional || std::ranges::any_of(want.many, &ManyPart::is_provisional);
  if (is_provisional)
    call.make = [this, chunk = chunk.get()] { return get_frame(*chunk); };
  else
    call.frame = get_frame(*chunk), call.cost = std::max<uint64_t>(call.cost, call.frame.bytes());
  set_order(call, *want.table, server, want.priority);
  send(*op, server, std::move(call));
}

base::Frame Client::get_frame(const Chunk& chunk) {
  const TableCall& op = *chunk.op;
  const Request& want = op.request;
  const ChunkRange& piece = chunk.piece;
  if (!want.many.empty()) return many_frame(op);
  if (want.codec == nullptr && piece.ids.empty())
    return get_form_.finish([&](wire::Get& get) {
      get.mutate_table(want.table->numbers[piece.server]);
      get.mutate_first(piece.first);
      get.mutate_count(piece.count);
      get.mutate_gated(op.gated);
      get.mutate_round(op.round());
      get.mutate_index(op.index());
      get.mutate_clock(op.clock());
    });
  const auto body = wire::CreateGet(servers_.builder.fbb(), want.table->numbers[piece.server], piece.first, piece.count, piece.ids.size(),
                                    op.gated, op.round(), op.index(), op.clock(), codec::to_wire(servers_.builder.fbb(), want.codec.get()));
  const auto ids = std::as_bytes(std::span(piece.ids));
  return servers_.builder.finish(wire::Body::Get, body, piece.ids.empty() ? nullptr : base::Payload::copy(ids));
}

// ---- ending

void Client::chunk_done(const TableCallRef& op, Chunk& chunk, const base::Status& status) {
  --op->open;
  if (!status.ok()) {
    const bool unsent = op->asked_back && status.code() == MV_ECANCELED;
    const bool withdrawn = unsent || (op->asked_back && status.code() == MV_ETIMEOUT);
    if (withdrawn && op->request.kind == OpKind::kChange) op->withdrawn.push_back(chunk.shared_from_this());
    const bool refused = status.code() == MV_ENOMEM && op->request.kind == OpKind::kChange && op->counting == TableCall::Counting::kNone;
    if (refused) op->refused.push_back(chunk.shared_from_this());
    if (op->error.ok()) op->error = !unsent ? status : base::error(MV_ETIMEOUT, "table \"{}\": {} has not answered earlier calls; this one waited behind them",
                                                                   op->request.table->spec.name, servers_.name(op->request.table->servers[chunk.piece.server]));
  }
  const bool lost = !op->error.ok() && !op->asked_back && servers_.rpc.is_lost(op->request.table->servers[chunk.piece.server]);
  if (op->open == 0)
    settle(op);
  else if (lost && op->is_sent)
    tell_loss(op);
  if (lost) drop_rest_of_call(*op);
}

/// A server is lost, so the call fails. Its caller does not wait for the other servers, which may wait for other
/// workers.
void Client::tell_loss(const TableCallRef& op) {
  if (op->request.operation == nullptr || op->request.operation->done()) return;
  if (op->request.kind == OpKind::kGet) return drop_get(op, base::Status(op->error));
  for (const auto& weak : op->chunks)  // the rest of the change continues
    if (const auto chunk = weak.lock(); chunk != nullptr && !chunk->over) chunk->let_go();
  complete(op, op->error);
}

void Client::drop_rest_of_call(const TableCall& op) {
  const base::Operation* const own = op.request.operation.get();
  if (own == nullptr || own->whole() == own) return;
  std::vector<TableCallRef> others;
  for (auto part = parts_.lower_bound({own->whole(), nullptr}); part != parts_.end() && part->first == own->whole(); ++part)
    if (part->second->request.kind == OpKind::kGet) others.push_back(*part->second->place);
  for (const TableCallRef& other : others)
    if (!other->request.operation->done()) drop_get(other, op.error);
}

void Client::settle(const TableCallRef& op) {
  if (op->request.kind == OpKind::kGet) {
    if (op->counted() && op->error.ok()) send_got(*op);
    if (op->counted() && !op->error.ok()) revert_counts(*op);
    return complete(op, op->error);
  }
  TableView& table = *op->request.table;
  if (!op->withdrawn.empty()) {
    const bool newest = table.index == op->index() + 1 && table.round == op->round();
    if (op->withdrawn.size() < op->chunks.size() || !newest) {
      // Other servers have applied their part, or later calls count on this one: it must continue.
      op->error = {};
      send_withdrawn_again(op);
      return leave_behind(op, MV_ETIMEOUT);
    }
    op->withdrawn.clear();
    table.index = op->index();
    complete(op, base::error(MV_ETIMEOUT, "{}; the add was not applied", op->error.text()));
    changes_.over(table, op->change_id);
    return entry_.given_up();
  }
  if (const auto refused = std::exchange(op->refused, {}); !refused.empty() && op->error.code() == MV_ENOMEM) {
    const bool any_applied = refused.size() < op->chunks.size() || op->request.skip != kNoServer || op->refusals > 0;
    if (any_applied && op->refusals++ < kMostRefusals) {
      op->error = {};
      return send_again(op, refused);
    }
    if (any_applied) op->error = base::error(MV_ENOMEM, "{}; the other servers have applied their part of the change", op->error.text());
  }
  if (op->request.operation == nullptr) changes_.note(table, op->error);
  complete(op, op->error);
  changes_.over(table, op->change_id);
}

void Client::complete(const TableCallRef& op, const base::Status& status) {
  if (op->open == 0) in_flight_.fetch_sub(std::exchange(op->request.reserved, 0), std::memory_order_relaxed);
  if (op->has_timer) servers_.timers.drop(op->timer);
  op->has_timer = false;
  if (op->request.operation == nullptr || op->request.operation->done()) return;
  if (op->whole != nullptr) parts_.erase({op->whole, op.get()});
  op->place->reset();
  over_.clear();
  over_.splice(over_.begin(), waited_for_, op->place);
  if (trace_ != nullptr) note_time(*op);
  op->request.operation->complete(status);
}

void Client::note_time(const TableCall& op) {
  const Request& request = op.request;
  const Use use = request.kind == OpKind::kChange ? static_cast<Use>(request.write) : request.gated ? Use::kGet : Use::kPeek;
  const base::Nanos now = servers_.clock.now();
  call_times_[static_cast<size_t>(use)].record(now - op.begun);
  trace_->note({static_cast<uint64_t>(op.begun.count()), static_cast<uint64_t>(now.count()), base::kNobody, 0, 0, base::TraceKind::kCall,
                static_cast<uint8_t>(use)});
}

void Client::send_got(const TableCall& op) {
  const TableView& table = *op.request.table;
  for (size_t server = 0; server < table.servers.size(); ++server) {
    if (!shard::has_part(table.spec, table.servers.size(), server)) continue;
    const auto frame = [this, server](const TableCall& of) {
      return servers_.builder.finish(wire::Body::Got, wire::CreateGot(servers_.builder.fbb(), of.request.table->numbers[server], of.round()));
    };
    rpc::Call call;
    if (op.is_provisional)
      call.make = [frame, op = op.shared_from_this()] { return frame(*op); };
    else
      call.frame = frame(op);
    call.pending = std::make_shared<rpc::Ignored>();
    call.wants_answer = false;
    call.overtakes = true;  // adds of other workers wait for this, and a get of this worker that fills the window may wait for those adds
    send(op, server, std::move(call));
  }
}

void Client::revert_counts(TableCall& op) {
  TableView& table = *op.request.table;
  if (table.round != op.round() + 1 || table.index != op.index()) return send_got(op);  // later calls carry counts that include it, so it counts as made
  table.round = op.round();
  entry_.given_up();
}

// ---- giving up

void Client::withdraw(const TableCallRef& op, mv_status code) {
  if (op->request.kind == OpKind::kGet)
    drop_get(op, base::error(code, "table \"{}\": the get was withdrawn", op->request.table->spec.name));
  else
    withdraw_change(op, code);
}

void Client::expire(const TableCallRef& op) {
  op->has_timer = false;
  if (op->request.operation->done()) return;
  const bool get = op->request.kind == OpKind::kGet;
  const bool whole_offer = !get && op->counted() && op->request.source->size() > kEagerBytes;
  if (op->gated && !op->asked_back && (get || whole_offer)) {
    op->asked_back = true;
    op->timer = servers_.timers.set(servers_.clock.now() + kLastWord, op);
    op->has_timer = true;
    for (const auto& weak : op->chunks)
      if (const auto chunk = weak.lock(); chunk != nullptr && !chunk->over && !entry_.expire(chunk.get()))
        servers_.rpc.cancel(op->request.table->servers[chunk->piece.server], chunk.get());
    return;
  }
  if (get)
    drop_get(op, base::error(MV_ETIMEOUT, "table \"{}\": no answer from {}", op->request.table->spec.name, waiting_for(*op)));
  else
    withdraw_change(op, MV_ETIMEOUT);
}

std::string Client::waiting_for(const TableCall& op) const {
  std::string names;
  std::vector<size_t> seen;
  for (const auto& weak : op.chunks) {
    const auto chunk = weak.lock();
    if (chunk == nullptr || chunk->over || std::find(seen.begin(), seen.end(), chunk->piece.server) != seen.end()) continue;
    seen.push_back(chunk->piece.server);
    names += (names.empty() ? "" : ", ") + servers_.name(op.request.table->servers[chunk->piece.server]);
  }
  return names;
}

void Client::drop_get(const TableCallRef& op, const base::Status& status) {
  for (const auto& weak : op->chunks) {
    const auto chunk = weak.lock();
    if (chunk == nullptr || std::exchange(chunk->over, true)) continue;
    chunk->let_go();
    if (entry_.drop(chunk.get())) continue;
    const base::Peer server = op->request.table->servers[chunk->piece.server];
    servers_.rpc.cancel(server, chunk.get());
    servers_.rpc.abandon(server, chunk.get(), status);
  }
  op->open = 0;
  if (op->counted()) revert_counts(*op);
  complete(op, status);
}

void Client::withdraw_change(const TableCallRef& op, mv_status code) {
  std::vector<std::shared_ptr<Chunk>> open;
  bool any_left = op->request.skip != kNoServer;  // the caller has already applied its own part
  for (const auto& weak : op->chunks) {
    const auto chunk = weak.lock();
    if (chunk == nullptr || chunk->over || !servers_.rpc.unsent(op->request.table->servers[chunk->piece.server], chunk.get()))
      any_left = true;
    else
      open.push_back(chunk);
  }
  TableView& table = *op->request.table;
  const bool newest = op->merged() ? table.clock == op->index() + 1
                                 : !op->counted() || (table.index == op->index() + 1 && table.round == op->round());
  if (any_left || !newest) {
    send_withdrawn_again(op);  // now: the caller's next calls must come after it
    return leave_behind(op, code);
  }
  std::string who = code == MV_ETIMEOUT ? fmt::format("{} can't be reached", waiting_for(*op)) : "withdrawn";
  for (const auto& chunk : open) {
    chunk->over = true;
    chunk->let_go();
    if (const std::string reason = entry_.reason(); entry_.drop(chunk.get())) {
      if (code == MV_ETIMEOUT) who = reason;
      continue;
    }
    servers_.rpc.cancel(table.servers[chunk->piece.server], chunk.get());
  }
  op->open = 0;
  if (op->counted()) table.index = op->index();
  if (op->merged()) {
    table.clock = op->index();
    if (table.adds_at_get > op->index()) table.adds_at_get = op->index();
  }
  complete(op, base::error(code, "table \"{}\": {}; the change was not applied", table.spec.name, who));
  changes_.over(table, op->change_id);
  entry_.given_up();
}

void Client::send_withdrawn_again(const TableCallRef& op) {
  send_again(op, std::exchange(op->withdrawn, {}));
}

void Client::send_again(const TableCallRef& op, const std::vector<std::shared_ptr<Chunk>>& again) {
  op->open += again.size();
  for (const auto& chunk : again) {
    chunk->over = false;
    chunk->let_go();
    send_change(op, chunk, true);
  }
}

/// Returns the caller's memory and reports that the outcome is unknown; the change itself continues.
void Client::leave_behind(const TableCallRef& op, mv_status code) {
  const std::string who = waiting_for(*op);
  for (const auto& weak : op->chunks)
    if (const auto chunk = weak.lock(); chunk != nullptr && !chunk->over) chunk->let_go();
  complete(op, base::error(code, "table \"{}\": outcome unknown: the change is still in transit to {} and may be applied later",
                           op->request.table->spec.name, who));
}

}  // namespace mv::table
