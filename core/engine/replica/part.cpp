#include "engine/replica/part.hpp"

#include <cstring>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "engine/checkpoint/clocks.hpp"
#include "wire/text.hpp"

namespace mv::replica {

using wire::ReplicaEvent;

flatbuffers::Offset<wire::Replicate> write_input(flatbuffers::FlatBufferBuilder& fbb, uint32_t part, const Part::Input& input) {
  flatbuffers::Offset<flatbuffers::Vector<uint8_t>> header;
  if (input.request != nullptr) {
    const auto copy = wire::copy_header(*input.request);
    header = fbb.CreateVector(reinterpret_cast<const uint8_t*>(copy.data()), copy.size());
  }
  const auto text = input.why.ok() ? flatbuffers::Offset<flatbuffers::String>() : fbb.CreateString(input.why.text());
  const auto worker = input.worker != nullptr ? cluster::write_member(fbb, *input.worker) : flatbuffers::Offset<wire::Member>();
  std::optional<wire::ReplicaPiece> piece;
  if (input.piece != nullptr) piece.emplace(input.piece->table, input.piece->from, input.piece->count, input.piece->digest);
  std::vector<flatbuffers::Offset<wire::RoundPart>> parts;
  for (const Part::Unsent& unsent : input.parts) {
    const auto message = fbb.CreateVector(reinterpret_cast<const uint8_t*>(unsent.header.data()), unsent.header.size());
    parts.push_back(wire::CreateRoundPart(fbb, unsent.asked.client, unsent.asked.seq, unsent.done, message));
  }
  const auto of_round = parts.empty() ? flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<wire::RoundPart>>>() : fbb.CreateVector(parts);
  flatbuffers::Offset<wire::PartOfSave> save;
  if (input.save != nullptr) {
    const checkpoint::FileEntry file = input.save->file.value_or(checkpoint::FileEntry());
    save = wire::CreatePartOfSaveDirect(fbb, input.save->path.c_str(), file.name.c_str(), file.bytes, file.checksum.c_str());
  }
  const auto refused = input.refused.empty() ? 0 : fbb.CreateVector(input.refused.data(), input.refused.size());
  return wire::CreateReplicate(fbb, part, input.event, input.client, input.seq, input.request != nullptr ? input.request->done() : 0, header,
                               input.why.code(), text, worker, piece ? &*piece : nullptr, nullptr, of_round, input.number, input.epoch, input.to, save, refused);
}

void Part::start(const cluster::View& view, const cluster::Member& server, table::Server& tables, bool has_copy) {
  view_ = view;
  server_ = server.peer;
  tables_ = &tables;
  streams_.set_part(server.rank + 1);
  tables.start(view_, server.peer, has_copy);
  tables.set_copies_all(has_all_);
}

void Part::lead() {
  leads_ = true;
  tables_->refusals().set_alone(true);
  outbox_.open();
}

void Part::pass_on(Log log, size_t unacknowledged) {
  log_ = std::move(log);
  tables_->refusals().set_alone(false);
  outbox_.hold(unacknowledged);
}

void Part::lead_alone() {
  log_ = nullptr;
  tables_->refusals().set_alone(true);
  waiting_.clear();
  for (const Unsent& unsent : std::exchange(unsent_, {})) tables_->release(unsent.asked);
  outbox_.release();
}

void Part::seal() {
  tables_->close_to_readers();
  send_withheld();
  outbox_.seal(true);
  log({.event = ReplicaEvent::Sealed});
  is_sealed_ = true;
}

void Part::unseal(const cluster::View& view) {
  is_sealed_ = false;
  outbox_.seal(false);
  if (std::exchange(owes_written_, false)) log({.event = ReplicaEvent::Written, .save = &*save_});
  catch_up(view);
  for (const cluster::Member& member : view_.members)
    if (member.is_worker() && member.state != cluster::MemberState::kLost) streams_.ask_again(member.peer);
}

void Part::log(Input input) {
  if (!log_) return;
  input.number = next_input();
  log_(input);
}

// ---- ends and beginnings of workers

void Part::worker_finished(base::Peer worker) {
  cluster::Member* const member = is_sealed_ ? nullptr : view_.find(worker);
  if (member == nullptr || std::exchange(member->state, cluster::MemberState::kFinished) != cluster::MemberState::kHere) return;
  send_withheld();
  send_waiting();
  log({.event = ReplicaEvent::Finished, .client = worker});
  tables_->worker_finished(worker);
}

void Part::worker_lost(base::Peer worker, const base::Status& why) {
  cluster::Member* const member = is_sealed_ ? nullptr : view_.find(worker);
  if (member == nullptr || member->state != cluster::MemberState::kHere) return;
  member->state = cluster::MemberState::kLost;
  send_withheld();
  send_waiting();
  log({.event = ReplicaEvent::Gone, .client = worker, .why = why});
  tables_->worker_lost(worker, why);
  streams_.on_lost(worker);
}

void Part::worker_joined(const cluster::Member& worker) {
  for (cluster::Member& place : view_.members) {
    if (place.rank != worker.rank || place.peer == worker.peer || is_sealed_) continue;
    send_withheld();
    send_waiting();
    log({.event = ReplicaEvent::Came, .client = worker.peer, .worker = &worker});
    streams_.on_lost(place.peer);  // a worker that has finished repeats nothing
    place = worker;
    place.state = cluster::MemberState::kHere;
    tables_->worker_joined(worker.peer);
  }
}

void Part::catch_up(const cluster::View& view) {
  for (const cluster::Member& member : view.members) {
    const cluster::Member* const known = view_.at(member.rank);
    if (known == nullptr || !member.is_worker()) continue;
    if (known->peer != member.peer) {
      if (member.losses == known->losses) worker_finished(known->peer);
      else worker_lost(known->peer, base::error(MV_EPEERLOST, "{} was lost", view_.name(known->peer)));
      worker_joined(member);
    }
    if (member.state == cluster::MemberState::kFinished) worker_finished(member.peer);
    if (member.state == cluster::MemberState::kLost && member.drained) worker_finished(member.peer);
    else if (member.state == cluster::MemberState::kLost) worker_lost(member.peer, base::Status(MV_EPEERLOST, member.why));
  }
}

// ---- comparison

namespace {
constexpr size_t kPieceBytes = 1 << 20;
}

void Part::compare() try {
  if (!log_ || is_sealed_ || tables_->numbers() == 0 || !outbox_.is_acknowledged(compared_)) return;
  Piece after;
  const Piece piece = piece_at(*tables_, next_.table, next_.from, kPieceBytes, &after);
  next_ = after;
  if (piece.count == 0 || (!has_all_ && tables_->is_without_backups(piece.table))) return;
  log({.event = ReplicaEvent::Compared, .piece = &piece});
  compared_ = outbox_.inputs();
} catch (const std::bad_alloc&) {  // another time
}

namespace {
/// "131072 elements from 0 on", or where else in the shard a piece is.
std::string describe(const Piece& piece, const shard::Shard* shard) {
  if (shard == nullptr) return "which is destroyed here";
  const uint64_t all = shard->elements(), from = static_cast<uint64_t>(piece.from);
  if (shard->spec().is_keyed() || all == 0) return fmt::format("{} rows from {} on", piece.count, piece.from);
  return fmt::format("{} elements from {} on{}", piece.count, from % all, from < all ? "" : " of what its updater keeps beside the values");
}
}  // namespace

void Part::compared_with(const Piece& theirs, base::Peer backup) try {
  const Piece ours = piece_like(*tables_, theirs, kPieceBytes);
  if ((ours.count == theirs.count && ours.digest == theirs.digest) || !differing_.insert(theirs.table).second) return;
  const auto shard = tables_->shard(theirs.table);
  base::log_error(
      "the copy of the tables of {} that {} keeps differs from them: table \"{}\", {}. One of the two computes or stores wrongly "
      "(a defect of the memory, the processor or the library), so a checkpoint from before is the better one",
      view_.name(server_), view_.name(backup), shard != nullptr ? shard->spec().name : fmt::format("number {}", theirs.table),
      describe(theirs, shard.get()));
} catch (const std::bad_alloc&) {
}

// ---- saves

void Part::hold(const std::string& path, std::span<const std::byte> clocks) {
  const table::CheckpointTables& tables = tables_->checkpoint_tables();
  save_.emplace(checkpoint::HeldSave{path, {}});
  if (tables.index() == 0) save_->entries = tables.entries(checkpoint::read_clocks(clocks).value_or(checkpoint::Clocks()));
  log({.event = ReplicaEvent::Snapshot, .payload = clocks, .save = &*save_});
  save_->inputs = outbox_.inputs();
}

void Part::written(const checkpoint::FileEntry* file) {
  if (!save_) return;
  save_->tables.reset();
  if (file != nullptr) save_->file = *file;
  owes_written_ = is_sealed_;
  if (!is_sealed_) log({.event = ReplicaEvent::Written, .save = &*save_});
}

/// Of a back-up. False if the input lacks something.
bool Part::replay_save(const wire::Replicate& input, std::span<const std::byte> clocks) {
  if (input.save() == nullptr) return false;
  const std::string path = wire::text_of(input.save()->path());
  if (input.event() == ReplicaEvent::Written) {
    if (!save_ || save_->path != path) return true;  // this process became a back-up during the save
    save_->tables.reset();
    const auto& file = *input.save();
    if (const std::string name = wire::text_of(file.name()); !name.empty()) save_->file = {name, file.bytes(), wire::text_of(file.checksum())};
    return true;
  }
  const auto read = checkpoint::read_clocks(clocks);
  if (!read) return false;
  save_.reset();  // a shard has one snapshot at a time
  table::CheckpointTables& tables = tables_->checkpoint_tables();
  save_.emplace(checkpoint::HeldSave{path, {}});
  if (tables.index() == 0) save_->entries = tables.entries(*read);
  for (uint32_t number = 0; number < tables_->numbers(); ++number)
    if (!has_all_ && tables_->has(number) && tables_->is_without_backups(number))
      save_->lost = base::error(MV_EPEERLOST, "the values of table \"{}\", which has no back-ups, were lost with {}", tables_->shard(number)->spec().name,
                                view_.name(server_));
  if (!save_->lost.ok()) return true;
  auto taken = tables.snapshot(*read);
  if (taken.ok())
    save_->tables = std::move(taken).value();
  else
    save_->lost = base::error(MV_EPEERLOST, "a server was lost while it wrote its file, and its back-up has no snapshot: {}", taken.status().text());
  return true;
}

// ---- a copy

void Part::calm(bool on) {
  is_calm_ = on;
  if (on) return;
  for (const base::Peer client : std::exchange(kept_waiting_, {})) streams_.go_on(client);
}

bool Part::may_start(const rpc::Asked& asked, const wire::Message& request) {
  if (!is_calm_ || tables_->part_state().may_start(asked, request)) return true;
  kept_waiting_.insert(asked.client);
  return false;
}

namespace {
constexpr size_t kStateBytes = 256 << 10;  ///< of a message of tables, about

base::PayloadRef finish_state(flatbuffers::FlatBufferBuilder& fbb, flatbuffers::Offset<wire::PartState> state) {
  fbb.Finish(state);
  auto payload = base::Payload::copy(std::as_bytes(std::span(fbb.GetBufferPointer(), fbb.GetSize())));
  fbb.Clear();
  return payload;
}
}  // namespace

void Part::write_state(const std::function<void(base::PayloadRef)>& send) const {
  flatbuffers::FlatBufferBuilder fbb;
  std::vector<flatbuffers::Offset<wire::Member>> members;
  for (const cluster::Member& member : view_.members) members.push_back(cluster::write_member(fbb, member));
  const auto of_members = fbb.CreateVector(members);
  const auto streams = fbb.CreateVector(streams_.write_state(fbb));
  const auto losses = fbb.CreateVector(tables_->part_state().write_losses(fbb));
  flatbuffers::Offset<wire::PartOfSave> save;
  if (save_ && save_->file) {
    const checkpoint::FileEntry& file = *save_->file;
    const std::string manifest = save_->entries.empty() ? "" : checkpoint::to_json({0, 0, {file}, save_->entries});
    save = wire::CreatePartOfSaveDirect(fbb, save_->path.c_str(), file.name.c_str(), file.bytes, file.checksum.c_str(), manifest.c_str());
  }
  send(finish_state(fbb, wire::CreatePartState(fbb, view_.sync, of_members, tables_->numbers(), streams, losses, 0, inputs_, has_all_, save)));
  std::vector<flatbuffers::Offset<wire::PartTable>> tables;
  for (uint32_t number = 0; number < tables_->numbers(); ++number) {
    if (tables_->has(number)) tables.push_back(tables_->part_state().write_table(fbb, number));
    if (tables.empty() || (fbb.GetSize() < kStateBytes && number + 1 < tables_->numbers())) continue;
    const auto of_tables = fbb.CreateVector(std::exchange(tables, {}));
    send(finish_state(fbb, wire::CreatePartState(fbb, false, 0, tables_->numbers(), 0, 0, of_tables)));
  }
}

base::Status Part::restore(const cluster::Member& server, table::Server& tables, std::span<const std::byte> payload) {
  flatbuffers::Verifier verifier(reinterpret_cast<const uint8_t*>(payload.data()), payload.size());
  if (!verifier.VerifyBuffer<wire::PartState>(nullptr)) return base::error(MV_EPROTOCOL, "the state of a copied part is not valid");
  const auto& state = *flatbuffers::GetRoot<wire::PartState>(payload.data());
  if (tables_ == nullptr) {
    if (state.members() == nullptr) return base::error(MV_EPROTOCOL, "the state of a copied part has no members");
    cluster::View view;
    view.sync = state.sync();
    for (const wire::Member* member : *state.members()) view.members.push_back(cluster::read_member(*member));
    const cluster::Member* const whose = view.at(server.rank);
    if (whose == nullptr || !whose->is_server()) return base::error(MV_EPROTOCOL, "the state of a copied part lacks its server");
    const cluster::Member copy = *whose;
    start(view, copy, tables);
    inputs_ = state.inputs();
    set_has_all(state.has_all());
    if (const wire::PartOfSave* const save = state.save()) {
      const std::string text = wire::text_of(save->manifest());
      auto manifest = text.empty() ? base::Result<checkpoint::Manifest>(checkpoint::Manifest()) : checkpoint::parse_manifest(text);
      if (!manifest.ok()) return base::error(MV_EPROTOCOL, "the state of a copied part has a damaged list of saved tables");
      save_.emplace(checkpoint::HeldSave{wire::text_of(save->path()), std::move(manifest).value().tables});
      save_->file = {wire::text_of(save->name()), save->bytes(), wire::text_of(save->checksum())};
    }
    if (state.streams() != nullptr)
      for (const wire::StreamState* stream : *state.streams())
        if (base::Status wrong = streams_.restore(*stream); !wrong.ok()) return wrong;
  }
  return tables_->part_state().restore(state);
}

// ---- requests

base::SinkRef Part::place(const wire::Message&, size_t bytes) {
  base::Pool::Block block = pool_.take(bytes);
  return base::Sink::into(block.bytes, block.memory);
}

/// An input whose processing may lack memory: the copies learn with it what was refused.
template <typename Work>
void Part::log_after(Input input, const Work& work) {
  outbox_.begin();
  tables_->refusals().begin();
  work();
  const std::vector<uint32_t> refused = tables_->refusals().end();
  input.refused = refused;
  log(std::move(input));
  outbox_.end();
}

void Part::on_request(const rpc::Asked& asked, const wire::Message& request, std::span<const std::byte> payload, const base::SinkRef& staged) {
  const bool is_input = !tables_->only_reads(request) && (has_all_ || !tables_->is_without_backups(request));
  const auto process = [&] { tables_->on_request(asked, request, payload, staged); };
  if (!log_ || !is_input) return process();
  if (tables_->only_waits(asked.client, request)) {
    keep_waiting(asked, request, payload);
    return process();
  }
  if (may_withhold_ && tables_->may_withhold(asked, request)) return pass_part(asked, request, payload, staged);
  send_before(asked, request);
  const Input input{.event = ReplicaEvent::Asked, .client = asked.client, .seq = asked.seq, .request = &request, .payload = payload, .staged = staged};
  if (leads_ && tables_->may_lack_memory(request)) return log_after(input, process);
  log(input);
  process();
}

void Part::on_data(const rpc::Asked& asked, std::span<const std::byte> payload, const base::SinkRef& staged) {
  const auto process = [&] { tables_->on_data(asked, payload, staged); };
  if (!log_) return process();
  const Input input{.event = ReplicaEvent::Granted, .client = asked.client, .seq = asked.seq, .payload = payload, .staged = staged};
  if (leads_ && tables_->may_lack_memory(asked)) return log_after(input, process);
  log(input);
  process();
}

void Part::on_cancel(const rpc::Asked& asked) {
  log({.event = ReplicaEvent::Canceled, .client = asked.client, .seq = asked.seq});
  tables_->on_cancel(asked);
}

// ---- the back-up

namespace {
/// A request's message in an input. `aligned` keeps it.
base::Result<const wire::Message*> read_request(const flatbuffers::Vector<uint8_t>& header, std::vector<uint64_t>& aligned) {
  aligned.resize((header.size() + 7) / 8);
  std::memcpy(aligned.data(), header.data(), header.size());
  return wire::read_header({reinterpret_cast<const std::byte*>(aligned.data()), header.size()});
}
}  // namespace

bool Part::is_round_without_backups(const wire::Replicate& input) const {
  if (input.parts()->size() == 0 || input.parts()->Get(0)->header() == nullptr) return false;
  std::vector<uint64_t> aligned;
  const auto request = read_request(*input.parts()->Get(0)->header(), aligned);
  return request.ok() && tables_->is_without_backups(*request.value());
}

/// The parts of a round come without values, in the order in which they came to the primary. The last one completes the stripe, which takes the
/// sum.
base::Status Part::replay_round(const wire::Replicate& input, std::span<const std::byte> payload) {
  if (input.parts() == nullptr) return base::error(MV_EPROTOCOL, "a merged round lacks its parts");
  table::WithheldParts& withheld = tables_->withheld();
  if (!has_all_ && is_round_without_backups(input)) return {};  // as in replay()
  withheld.expect_sum(payload);
  base::Status wrong;
  for (const wire::RoundPart* part : *input.parts()) {
    if (part->header() == nullptr) wrong = base::error(MV_EPROTOCOL, "a part of a merged round lacks its request");
    std::vector<uint64_t> aligned;
    const auto request = wrong.ok() ? read_request(*part->header(), aligned) : base::Result<const wire::Message*>(wrong);
    wrong = request.ok() ? streams_.replay({part->client(), part->seq()}, part->done(), *request.value(), {}, nullptr) : request.status();
    if (!wrong.ok()) break;
  }
  const bool is_merged = !withheld.expected_sum().has_value();
  withheld.sum_taken();
  return wrong.ok() && !is_merged ? base::error(MV_EPROTOCOL, "the parts of a merged round are not all of its parts") : wrong;
}

base::Status Part::replay(base::Peer self, const wire::Replicate& input, std::span<const std::byte> payload, const base::SinkRef& staged) {
  if (damage_.ok()) damage_ = replay_input(self, input, payload, staged);
  return damage_;
}

base::Status Part::replay_input(base::Peer self, const wire::Replicate& input, std::span<const std::byte> payload, const base::SinkRef& staged) {
  const rpc::Asked asked{input.client(), input.seq()};
  inputs_ = input.number();
  tables_->refusals().expect(input.refused() != nullptr ? std::vector<uint32_t>(input.refused()->begin(), input.refused()->end()) : std::vector<uint32_t>());
  switch (input.event()) {
    case ReplicaEvent::Asked: {
      if (input.header() == nullptr) break;
      std::vector<uint64_t> aligned;
      const auto request = read_request(*input.header(), aligned);
      if (!request.ok()) return request.status();
      // The copy that is to replace this one has the values of such tables. Here, the request would wait at its gate for ever.
      if (!has_all_ && tables_->is_without_backups(*request.value())) return {};
      return streams_.replay(asked, input.done(), *request.value(), payload, staged);
    }
    case ReplicaEvent::Granted:
      streams_.replay_data(asked, payload, staged);
      return {};
    case ReplicaEvent::Canceled:
      streams_.replay_cancel(asked);
      return {};
    case ReplicaEvent::Finished:
      worker_finished(input.client());
      return {};
    case ReplicaEvent::Gone:
      worker_lost(input.client(), base::Status(static_cast<mv_status>(input.status()), wire::text_of(input.text())));
      return {};
    case ReplicaEvent::Came:
      if (input.worker() == nullptr) break;
      worker_joined(cluster::read_member(*input.worker()));
      return {};
    case ReplicaEvent::Merged:
      return replay_round(input, payload);
    case ReplicaEvent::Snapshot:
    case ReplicaEvent::Written:
      if (!replay_save(input, payload)) break;
      return {};
    case ReplicaEvent::Sealed:
    case ReplicaEvent::Copy:
    case ReplicaEvent::Leads:
    case ReplicaEvent::Refused:
      return {};
    case ReplicaEvent::Compared:
      if (input.piece() == nullptr) break;
      compared_with({input.piece()->table(), input.piece()->from(), input.piece()->count(), input.piece()->digest()}, self);
      return {};
    default:
      break;
  }
  return base::error(MV_EPROTOCOL, "an input of a part has an unknown kind, or lacks its content");
}

}  // namespace mv::replica
