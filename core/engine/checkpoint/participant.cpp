#include "engine/checkpoint/participant.hpp"

#include <utility>

#include "base/log.hpp"
#include "engine/checkpoint/clocks.hpp"
#include "wire/text.hpp"

namespace mv::checkpoint {

void Participant::on_request(const rpc::Asked& asked, const wire::Message& request, std::span<const std::byte> payload) {
  if (storage_ == nullptr) return rpc_.fail(asked, base::Status(MV_ENOSYS, "this server has no storage for checkpoints"));
  if (view_ == nullptr || view_->servers().front()->peer != asked.client)
    return rpc_.fail(asked, base::Status(MV_EPROTOCOL, "only server 0 can make servers write and read files"));
  switch (request.body_type()) {
    case wire::Body::Snapshot:
      return snapshot(asked, *request.body_as_Snapshot(), payload);
    case wire::Body::Written:
      return written(asked, *request.body_as_Written());
    case wire::Body::Check:
      return check(asked, *request.body_as_Check());
    case wire::Body::Restore:
      return restore(asked, *request.body_as_Restore());
    default:
      return rpc_.fail(
          asked, base::error(MV_EPROTOCOL, "a server does not understand {}", wire::EnumNameBody(request.body_type())));
  }
}

void Participant::lost(base::Peer peer) {
  if (writing_ != nullptr && writing_->by == peer) *writing_->given_up = true;
  if (prepared_ != nullptr && prepared_->by == peer) prepared_.reset();
}

// ---- saving

void Participant::snapshot(const rpc::Asked& asked, const wire::Snapshot& request, std::span<const std::byte> payload) {
  if (writing_ != nullptr && !writing_->over)
    return rpc_.fail(asked, base::Status(MV_ESTATE, "the file of an earlier checkpoint is still being written"));
  const auto clocks = read_clocks(payload);
  if (!clocks) return rpc_.fail(asked, base::Status(MV_EPROTOCOL, "a request for a snapshot has a damaged list of clocks"));
  auto tables = tables_.snapshot(*clocks);
  if (!tables.ok()) return rpc_.fail(asked, tables.status());
  const auto writing = std::make_shared<Writing>();
  writing->save = request.save();
  writing->by = asked.client;
  writing_ = writing;
  rpc_.answer(asked, builder_.answer({}));
  Storage::NewFile part{wire::text_of(request.path()), request.number(), tables_.index(), tables_.servers(),
                     std::move(tables).value()};
  storage_->write(std::move(part), writing->given_up, [this, writing, begun = clock_.now()](base::Result<checkpoint::FileEntry> file) {
    note(file, clock_.now() - begun);
    writing->over = true;
    if (file.ok())
      writing->file = std::move(file).value();
    else
      writing->status = file.status();
  });
}

void Participant::note(const base::Result<checkpoint::FileEntry>& file, base::Nanos took) {
  ++(file.ok() ? record_.files : record_.failed);
  if (!file.ok()) return;
  record_.last_bytes = file.value().bytes;
  record_.last_took = took;
}

void Participant::written(const rpc::Asked& asked, const wire::Written& request) {
  if (writing_ == nullptr || writing_->save != request.save() || writing_->by != asked.client)
    return rpc_.fail(asked, base::Status(MV_ENOTFOUND, "this checkpoint is not being written here"));
  if (request.forget()) *writing_->given_up = true;
  if (writing_->over && !writing_->status.ok()) return rpc_.fail(asked, writing_->status);
  auto& fbb = builder_.fbb();
  const auto file = writing_->over ? wire::CreateSavedFileDirect(fbb, writing_->file.name.c_str(), writing_->file.bytes,
                                                                 writing_->file.checksum.c_str())
                                   : wire::CreateSavedFile(fbb);
  rpc_.answer(asked, builder_.finish(wire::Body::SavedFile, file));
}

// ---- loading

void Participant::check(const rpc::Asked& asked, const wire::Check& request) {
  const auto prepared = std::make_shared<Prepared>();
  prepared->path = wire::text_of(request.path());
  prepared->by = asked.client;
  prepared_ = prepared;
  const auto over = [this, asked, prepared](const base::Status& status) {
    if (status.ok()) return rpc_.answer(asked, builder_.answer({}));
    if (prepared_ == prepared) prepared_.reset();
    rpc_.fail(asked, status);
  };
  const checkpoint::Share share{tables_.servers(), tables_.index()};
  storage_->check(prepared->path, share, [this, prepared, over](base::Result<checkpoint::Manifest> manifest) {
    if (!manifest.ok()) return over(manifest.status());
    prepared->manifest = std::move(manifest).value();
    if (const base::Status failed = make_parts(*prepared); !failed.ok()) return over(failed);
    storage_->restore(prepared->path, prepared->targets(), over);
  });
}

base::Status Participant::was_destroyed(const std::string& table) {
  return base::error(MV_ESTATE, "table \"{}\" was destroyed while it was being loaded", table);
}

base::Status Participant::make_parts(Prepared& prepared) {
  for (const auto& entry : prepared.manifest.tables) {
    if (const base::Status wrong = tables_.fits(entry.spec); !wrong.ok()) return wrong;
    const bool exists = tables_.find_shard(entry.spec.name) != nullptr;
    auto shard = exists ? tables_.make_hidden_shard(entry.spec) : tables_.make_shard(std::make_shared<const shard::Spec>(entry.spec));
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
  const std::string path = wire::text_of(request.path());
  const auto prepared = std::exchange(prepared_, nullptr);
  if (request.forget()) return rpc_.answer(asked, builder_.answer({}));
  if (prepared == nullptr || prepared->path != path)
    return rpc_.fail(asked, base::error(MV_ESTATE, "{}: was not checked before", path));
  std::vector<Storage::Move> moves;
  for (size_t i = 0; i < prepared->parts.size(); ++i) {
    auto& [shard, exists] = prepared->parts[i];
    const auto& entry = prepared->manifest.tables[i];
    if (!exists) continue;
    const auto own = tables_.find_shard(entry.spec.name);
    if (own == nullptr) return rpc_.fail(asked, was_destroyed(entry.spec.name));
    // Another table may have this name by now.
    if (const base::Status wrong = tables_.fits(entry.spec); !wrong.ok()) return rpc_.fail(asked, wrong);
    moves.push_back({entry, std::exchange(shard, own), own});
  }
  storage_->move(std::move(moves), [this, asked, prepared](const base::Status& failed) {
    const base::Status status = failed.ok() ? adopt(*prepared) : failed;
    status.ok() ? rpc_.answer(asked, builder_.answer({})) : rpc_.fail(asked, status);
  });
}

/// Goes through all tables even after an error, and returns the first one.
base::Status Participant::adopt(const Prepared& prepared) {
  base::Status first;
  for (size_t i = 0; i < prepared.parts.size(); ++i) {
    const auto& [shard, exists] = prepared.parts[i];
    const auto& entry = prepared.manifest.tables[i];
    base::Status status;
    if (!exists) status = tables_.adopt(entry.spec, shard);
    if (status.ok() && !tables_.restart_clock(entry.spec.name, *shard, entry.clock)) status = was_destroyed(entry.spec.name);
    if (first.ok()) first = status;
  }
  return first;
}

}  // namespace mv::checkpoint
