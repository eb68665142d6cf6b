#include "engine/ps/vault.hpp"

#include "base/log.hpp"

namespace mv::ps {

namespace {
std::string text_of(const flatbuffers::String* text) { return text != nullptr ? text->str() : ""; }
}  // namespace

Clocks read_clocks(const flatbuffers::Vector<flatbuffers::Offset<wire::TableClock>>* clocks) {
  Clocks read;
  if (clocks == nullptr) return read;
  for (const wire::TableClock* clock : *clocks) read.emplace(text_of(clock->name()), clock->clock());
  return read;
}

flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<wire::TableClock>>> write_clocks(
    flatbuffers::FlatBufferBuilder& fbb, const Clocks& clocks) {
  std::vector<flatbuffers::Offset<wire::TableClock>> written;
  for (const auto& [name, clock] : clocks) written.push_back(wire::CreateTableClockDirect(fbb, name.c_str(), clock));
  return fbb.CreateVector(written);
}

void Vault::on_request(const rpc::Asked& asked, const wire::Message& request) {
  if (archive_ == nullptr) return rpc_.fail(asked, base::Status(MV_ENOSYS, "this server keeps no checkpoints"));
  if (view_ == nullptr || view_->servers().front()->peer != asked.client)
    return rpc_.fail(asked, base::Status(MV_EPROTOCOL, "only server 0 has servers write and read files"));
  switch (request.body_type()) {
    case wire::Body::Snapshot:
      return snapshot(asked, *request.body_as_Snapshot());
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

void Vault::lost(base::Peer peer) {
  if (writing_ != nullptr && writing_->by == peer) *writing_->given_up = true;
}

// ---- saving

void Vault::snapshot(const rpc::Asked& asked, const wire::Snapshot& request) {
  if (writing_ != nullptr && !writing_->over)
    return rpc_.fail(asked, base::Status(MV_ESTATE, "the file of an earlier checkpoint is still being written"));
  auto tables = tables_.snapshot(read_clocks(request.clocks()));
  if (!tables.ok()) return rpc_.fail(asked, tables.status());
  const auto writing = std::make_shared<Writing>();
  writing->save = request.save();
  writing->by = asked.client;
  writing_ = writing;
  rpc_.answer(asked, builder_.answer({}));
  Archive::Part part{text_of(request.path()), request.number(), tables_.index(), tables_.servers(),
                     std::move(tables).value()};
  archive_->write(std::move(part), writing->given_up, [writing](base::Result<table::checkpoint::FileEntry> file) {
    writing->over = true;
    if (file.ok())
      writing->file = std::move(file).value();
    else
      writing->status = file.status();
  });
}

void Vault::written(const rpc::Asked& asked, const wire::Written& request) {
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

void Vault::check(const rpc::Asked& asked, const wire::Check& request) {
  prepared_.reset();
  const std::string path = text_of(request.path());
  const table::checkpoint::Share share{tables_.servers(), tables_.index()};
  archive_->check(path, share, [this, asked, path](base::Result<table::checkpoint::Manifest> manifest) {
    const base::Status status = manifest.ok() ? prepare(path, std::move(manifest).value()) : manifest.status();
    status.ok() ? rpc_.answer(asked, builder_.answer({})) : rpc_.fail(asked, status);
  });
}

base::Status Vault::prepare(const std::string& path, table::checkpoint::Manifest manifest) {
  Prepared prepared{path, std::move(manifest), {}};
  for (const auto& entry : prepared.manifest.tables) {
    if (const base::Status wrong = tables_.fits(entry.spec); !wrong.ok()) return wrong;
    if (tables_.find_shard(entry.spec.name) != nullptr) {
      prepared.made.push_back(nullptr);
      continue;
    }
    auto shard = tables_.make_shard(entry.spec);
    if (!shard.ok()) return shard.status();
    if (const base::Status failed = shard.value()->set_updater(entry.updater); !failed.ok()) return failed;
    prepared.made.push_back(std::move(shard).value());
  }
  prepared_ = std::move(prepared);
  return {};
}

void Vault::restore(const rpc::Asked& asked, const wire::Restore& request) {
  const std::string path = text_of(request.path());
  if (!prepared_ || prepared_->path != path)
    return rpc_.fail(asked, base::error(MV_ESTATE, "{}: was not checked before", path));
  const auto prepared = std::make_shared<Prepared>(std::move(*prepared_));
  prepared_.reset();
  std::vector<Archive::Target> targets;
  for (size_t i = 0; i < prepared->made.size(); ++i) {
    const auto& entry = prepared->manifest.tables[i];
    const auto shard = prepared->made[i] != nullptr ? prepared->made[i] : tables_.find_shard(entry.spec.name);
    if (shard == nullptr)
      return rpc_.fail(asked,
                       base::error(MV_ESTATE, "table \"{}\" was destroyed while it was being loaded", entry.spec.name));
    targets.push_back({entry, shard});
  }
  archive_->restore(path, std::move(targets), [this, asked, prepared](const base::Status& failed) {
    const base::Status status = failed.ok() ? adopt(*prepared) : failed;
    status.ok() ? rpc_.answer(asked, builder_.answer({})) : rpc_.fail(asked, status);
  });
}

base::Status Vault::adopt(const Prepared& prepared) {
  for (size_t i = 0; i < prepared.made.size(); ++i) {
    const auto& entry = prepared.manifest.tables[i];
    if (prepared.made[i] != nullptr)
      if (const base::Status failed = tables_.adopt(entry.spec, prepared.made[i]); !failed.ok()) return failed;
    tables_.restart_clock(entry.spec.name, entry.clock);
  }
  return {};
}

}  // namespace mv::ps
