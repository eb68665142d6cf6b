#include "engine/checkpoint/participant.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "engine/checkpoint/clocks.hpp"
#include "wire/text.hpp"

namespace mv::checkpoint {

using namespace std::chrono_literals;

namespace {
constexpr base::Nanos kLookEvery = 2ms;  ///< whether a request that waits can be executed

uint64_t part_of(const wire::Message& request) {
  if (const auto* of = request.body_as_Snapshot()) return of->part();
  if (const auto* of = request.body_as_Written()) return of->part();
  if (const auto* of = request.body_as_Check()) return of->part();
  if (const auto* of = request.body_as_Restore()) return of->part();
  return UINT64_MAX;
}
}  // namespace

void Participant::on_request(const rpc::Asked& asked, const wire::Message& request, std::span<const std::byte> payload) {
  if (storage_ == nullptr) return rpc_.fail(asked, base::Status(MV_ENOSYS, "this server has no storage for checkpoints"));
  if (execute(asked, request, payload)) return;
  held_.push_back({asked, wire::copy_header(request), {payload.begin(), payload.end()}});
  look_at_ = std::min(look_at_, clock_.now() + kLookEvery);
}

/// False: later.
bool Participant::execute(const rpc::Asked& asked, const wire::Message& request, std::span<const std::byte> payload) {
  const auto servers = view_ != nullptr ? view_->servers() : std::vector<const cluster::Member*>();
  const uint64_t part = part_of(request);
  if (part >= servers.size())
    return rpc_.fail(asked, base::error(MV_EPROTOCOL, "a server does not understand {}", wire::EnumNameBody(request.body_type()))), true;
  if (const auto* of = request.body_as_Written(); of != nullptr && is_writing(asked, *of)) return written(asked, *of), true;  // even if the part has moved
  if (view_->serving(*servers.front()) != asked.client || parts_.served(part) == nullptr) {
    if (view_->serving(*servers.front()) == asked.client && parts_.is_elsewhere(part)) {
      duties_[part].prepared.reset();
      return rpc_.fail(asked, base::error(kMoved, "this part of the tables has moved to another server")), true;
    }
    if (parts_.can_move()) return false;
    return rpc_.fail(asked, base::Status(MV_EPROTOCOL, "only server 0 can make servers write and read files, each its own")), true;
  }
  // While a load of a lost coordinator ends, or a copy is sent: a table has one snapshot at a time.
  const bool resumes = request.body_type() == wire::Body::Snapshot && request.body_as_Snapshot()->resumes();  // takes no snapshot
  const bool begins = request.body_type() != wire::Body::Written && !resumes;
  if (begins && parts_.is_being_copied(part)) return false;
  const bool is_first = (request.body_type() == wire::Body::Snapshot && !resumes) || request.body_type() == wire::Body::Check;
  if (is_first && parts_.is_leaving() && parts_.served(0) == nullptr) return false;  // the coordinator ends what it has begun
  if (request.body_type() == wire::Body::Snapshot) return snapshot(asked, *request.body_as_Snapshot(), payload);
  if (const auto* of = request.body_as_Written()) written(asked, *of);
  if (const auto* of = request.body_as_Check()) check(asked, *of);
  if (const auto* of = request.body_as_Restore()) restore(asked, *of);
  return true;
}

void Participant::lost(base::Peer peer) {
  for (auto& [part, duty] : duties_) {
    if (duty.writing != nullptr && duty.writing->by == peer) {
      duty.writing->is_orphaned = true;
      if (!parts_.can_move()) *duty.writing->given_up = true;
      if (HeldSave* const held = parts_.held(part); held != nullptr && duty.writing->is_kept) held->until = clock_.now() + kKeepsSave;
    }
    if (duty.prepared != nullptr && duty.prepared->by == peer) duty.prepared.reset();
  }
  std::erase_if(held_, [peer](const Held& held) { return held.asked.client == peer; });
  std::erase_if(await_backups_, [peer](const AwaitsBackups& of) { return of.asked.client == peer; });
}

void Participant::cut_off() {
  for (auto& [part, duty] : duties_)
    if (duty.writing != nullptr) *duty.writing->given_up = true;
}

bool Participant::is_busy() const {
  return std::ranges::any_of(duties_, [](const auto& entry) {
    const Duty& duty = entry.second;
    const Writing* const writing = duty.writing.get();
    return duty.prepared != nullptr ||
           (writing != nullptr && !writing->told && !*writing->given_up && !(writing->is_orphaned && (writing->over || writing->is_kept)));
  });
}

void Participant::tick() {
  if (clock_.now() < look_at_) return;
  look_at_ = base::kNever;
  answer_backed_up();
  for (const Held& held : std::exchange(held_, {})) on_request(held.asked, *flatbuffers::GetRoot<wire::Message>(held.header.data()), held.payload);
}

// ---- saving

bool Participant::snapshot(const rpc::Asked& asked, const wire::Snapshot& request, std::span<const std::byte> payload) {
  const uint64_t part = request.part();
  if (request.resumes()) return resume(asked, request), true;
  Duty& duty = duties_[part];
  if (const auto writing = duty.writing; writing != nullptr && !writing->over && !writing->is_kept) {
    if (writing->is_orphaned) *writing->given_up = true;
    if (*writing->given_up && parts_.can_move()) return false;
    return rpc_.fail(asked, base::Status(MV_ESTATE, "the file of an earlier checkpoint is still being written")), true;
  }
  const auto clocks = read_clocks(payload);
  if (!clocks) return rpc_.fail(asked, base::Status(MV_EPROTOCOL, "a request for a snapshot has a damaged list of clocks")), true;
  if (const HeldSave* const held = parts_.held(part); held != nullptr && held->tables) parts_.written(part, held->path, nullptr);  // it does not continue
  if (parts_.served(part)->has_snapshot()) return false;  // a worker saves states of optimizers
  auto saved = parts_.served(part)->snapshot(*clocks);
  if (!saved.ok()) return rpc_.fail(asked, saved.status()), true;
  duty.writing = std::make_shared<Writing>(request.save(), request.number(), wire::text_of(request.path()), asked.client);
  parts_.hold(part, duty.writing->path, payload);
  await_backups_.push_back({asked, part});
  answer_backed_up();
  write(part, duty.writing, std::move(saved).value());
  return true;
}

/// The coordinator, or the process that served the part, was lost after the snapshots. A kept one is written when the coordinator asks for the
/// file: it may be written already.
void Participant::resume(const rpc::Asked& asked, const wire::Snapshot& request) {
  const std::string path = wire::text_of(request.path());
  HeldSave* const known = parts_.held(request.part());
  HeldSave* const held = known != nullptr && known->path == path ? known : nullptr;
  auto& writing = duties_[request.part()].writing;
  if (held != nullptr && !held->lost.ok() && !held->file) return rpc_.fail(asked, held->lost);
  if (held != nullptr && (held->tables || held->file)) {
    if (writing != nullptr) *writing->given_up = true;  // of an earlier save
    writing = std::make_shared<Writing>(request.save(), request.number(), path, asked.client);
    writing->is_kept = held->tables.has_value();
    held->until = base::kNever;
    writing->over = held->file.has_value();
    if (held->file) writing->file = *held->file;
  } else if (held != nullptr && writing != nullptr && writing->path == path) {
    writing->save = request.save();
    writing->by = asked.client;
    writing->is_orphaned = writing->told = false;
  } else {
    return rpc_.fail(asked, base::error(MV_EPEERLOST, "the server that wrote part {} of it was lost, and no other process has a snapshot", request.part()));
  }
  rpc_.answer(asked, builder_.answer({}));
}

void Participant::write(uint64_t part, const std::shared_ptr<Writing>& writing, std::vector<checkpoint::SavedTable> saved) {
  const table::CheckpointTables& tables = *parts_.served(part);
  Storage::NewFile file{writing->path, writing->number, tables.index(), tables.servers(), std::exchange(writing->is_kept, false), std::move(saved)};
  storage_->write(std::move(file), writing->given_up, [this, part, writing, begun = clock_.now()](base::Result<checkpoint::FileEntry> file) {
    note(file, clock_.now() - begun);
    writing->over = true;
    if (file.ok())
      writing->file = std::move(file).value();
    else
      writing->status = file.status();
    parts_.written(part, writing->path, writing->status.ok() ? &writing->file : nullptr);
  });
}

void Participant::write_kept(uint64_t part, const std::shared_ptr<Writing>& writing) {
  HeldSave* const held = parts_.held(part);
  const bool is_there = held != nullptr && held->path == writing->path && held->tables && parts_.served(part) != nullptr;
  if (is_there && !*writing->given_up) {
    base::log_info("checkpoint {}: this process writes part {} from its back-up", writing->path, part);
    return write(part, writing, *std::exchange(held->tables, std::nullopt));
  }
  writing->is_kept = false;
  writing->over = true;
  writing->status = base::error(is_there ? MV_ECANCELED : MV_EPEERLOST, "checkpoint {}: part {} of it is not written", writing->path, part);
  if (is_there) parts_.written(part, writing->path, nullptr);
}

/// Answers the requests for snapshots that the back-ups have taken, too.
void Participant::answer_backed_up() {
  for (const AwaitsBackups& of : std::exchange(await_backups_, {})) {
    if (parts_.served(of.part) == nullptr) {
      rpc_.fail(of.asked, base::error(kMoved, "this part of the tables has moved to another server"));
    } else if (parts_.is_held(of.part)) {
      rpc_.answer(of.asked, builder_.answer({}));
    } else if (const base::Status cut_off = parts_.why_cut_off(); !cut_off.ok()) {
      rpc_.fail(of.asked, cut_off);
    } else {
      await_backups_.push_back(of);
      look_at_ = std::min(look_at_, clock_.now() + kLookEvery);
    }
  }
}

void Participant::note(const base::Result<checkpoint::FileEntry>& file, base::Nanos took) {
  ++(file.ok() ? record_.files : record_.failed);
  if (!file.ok()) return;
  record_.last_bytes = file.value().bytes;
  record_.last_took = took;
}

bool Participant::is_writing(const rpc::Asked& asked, const wire::Written& request) const {
  const auto duty = duties_.find(request.part());
  const auto* const writing = duty != duties_.end() ? duty->second.writing.get() : nullptr;
  return writing != nullptr && writing->save == request.save() && writing->by == asked.client;
}

void Participant::written(const rpc::Asked& asked, const wire::Written& request) {
  const auto& writing = duties_[request.part()].writing;
  if (!is_writing(asked, request))
    return rpc_.fail(asked, base::Status(MV_ENOTFOUND, "this checkpoint is not being written here"));
  if (request.forget()) *writing->given_up = true;
  if (writing->is_kept) write_kept(request.part(), writing);
  writing->told = writing->over;
  if (writing->over && !writing->status.ok()) return rpc_.fail(asked, writing->status);
  auto& fbb = builder_.fbb();
  const checkpoint::FileEntry& entry = writing->file;
  const auto file =
      writing->over ? wire::CreateSavedFileDirect(fbb, entry.name.c_str(), entry.bytes, entry.checksum.c_str()) : wire::CreateSavedFile(fbb);
  rpc_.answer(asked, builder_.finish(wire::Body::SavedFile, file));
}

// ---- loading

void Participant::check(const rpc::Asked& asked, const wire::Check& request) {
  const uint64_t part = request.part();
  const auto prepared = std::make_shared<Prepared>();
  prepared->path = wire::text_of(request.path());
  prepared->by = asked.client;
  duties_[part].prepared = prepared;
  const auto over = [this, asked, part, prepared](const base::Status& status) {
    if (status.ok()) return rpc_.answer(asked, builder_.answer({}));
    if (duties_[part].prepared == prepared) duties_[part].prepared.reset();
    rpc_.fail(asked, status);
  };
  const table::CheckpointTables& tables = *parts_.served(part);
  storage_->check(prepared->path, {tables.servers(), tables.index()}, [this, part, prepared, over](base::Result<checkpoint::Manifest> manifest) {
    if (!manifest.ok()) return over(manifest.status());
    prepared->manifest = std::move(manifest).value();
    if (const base::Status failed = make_parts(*parts_.served(part), *prepared); !failed.ok()) return over(failed);
    storage_->restore(prepared->path, prepared->targets(), over);
  });
}

base::Status Participant::was_destroyed(const std::string& table) {
  return base::error(MV_ESTATE, "table \"{}\" was destroyed while it was being loaded", table);
}

base::Status Participant::make_parts(table::CheckpointTables& tables, Prepared& prepared) {
  for (const auto& entry : prepared.manifest.tables) {
    if (const base::Status wrong = tables.fits(entry.spec); !wrong.ok()) return wrong;
    const bool exists = tables.find_shard(entry.spec.name) != nullptr;
    auto shard = exists ? tables.make_hidden_shard(entry.spec) : tables.make_shard(std::make_shared<const shard::Spec>(entry.spec));
    if (!shard.ok()) return shard.status();
    prepared.parts.push_back({std::move(shard).value(), exists});
  }
  return {};
}

std::vector<Storage::Target> Participant::Prepared::targets() const {
  std::vector<Storage::Target> targets;
  for (size_t i = 0; i < parts.size(); ++i) targets.push_back({manifest.tables[i], parts[i].shard});
  return targets;
}

void Participant::restore(const rpc::Asked& asked, const wire::Restore& request) {
  const uint64_t part = request.part();
  const std::string path = wire::text_of(request.path());
  const auto prepared = std::exchange(duties_[part].prepared, nullptr);
  if (request.forget()) return rpc_.answer(asked, builder_.answer({}));
  if (prepared == nullptr || prepared->path != path)
    return rpc_.fail(asked, base::error(MV_ESTATE, "{}: was not checked before", path));
  const table::CheckpointTables& tables = *parts_.served(part);
  std::vector<Storage::Move> moves;
  for (size_t i = 0; i < prepared->parts.size(); ++i) {
    auto& [shard, exists] = prepared->parts[i];
    const auto& entry = prepared->manifest.tables[i];
    if (!exists) continue;
    const auto own = tables.find_shard(entry.spec.name);
    if (own == nullptr) return rpc_.fail(asked, was_destroyed(entry.spec.name));
    // Another table may have this name by now.
    if (const base::Status wrong = tables.fits(entry.spec); !wrong.ok()) return rpc_.fail(asked, wrong);
    moves.push_back({entry, std::exchange(shard, own), own});
  }
  parts_.begin_replacing(part);
  storage_->move(std::move(moves), [this, asked, part, prepared](const base::Status& failed) { moved(asked, part, *prepared, failed); });
}

void Participant::moved(const rpc::Asked& asked, uint64_t part, const Prepared& prepared, const base::Status& failed) {
  const base::Status status = failed.ok() ? adopt(*parts_.served(part), prepared) : failed;
  parts_.replaced(part, [this, asked, status] { status.ok() ? rpc_.answer(asked, builder_.answer({})) : rpc_.fail(asked, status); });
}

/// Goes through all tables even after an error, and returns the first one.
base::Status Participant::adopt(table::CheckpointTables& tables, const Prepared& prepared) {
  base::Status first;
  for (size_t i = 0; i < prepared.parts.size(); ++i) {
    const auto& [shard, exists] = prepared.parts[i];
    const auto& entry = prepared.manifest.tables[i];
    base::Status status;
    if (!exists) status = tables.adopt(entry.spec, shard);
    if (status.ok() && !tables.restart_clock(entry.spec.name, *shard, entry.clock)) status = was_destroyed(entry.spec.name);
    if (first.ok()) first = status;
  }
  return first;
}

}  // namespace mv::checkpoint
