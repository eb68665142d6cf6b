#include "checkpoints/disk.hpp"

#include <algorithm>
#include <cstdlib>

#include "checkpoint/restore.hpp"

namespace mv::sim {

namespace {
constexpr Nanos kSlowest = std::chrono::milliseconds(20);
uint64_t number_of(const std::string& path) { return std::strtoull(path.c_str() + path.rfind('-') + 1, nullptr, 10); }
std::vector<std::byte> copy(std::span<const std::byte> bytes) { return {bytes.begin(), bytes.end()}; }
}  // namespace

shard::Rows Disk::Chunk::rows() const {
  shard::Rows rows{.first = first, .count = count, .ids = ids, .values = values, .states = {}};
  for (const auto& state : states) rows.states.emplace_back(state);
  return rows;
}

const Disk::Checkpoint* Disk::newest() const {
  const auto found = std::find_if(checkpoints.rbegin(), checkpoints.rend(),
                                  [](const auto& entry) { return entry.second.manifest.has_value(); });
  return found != checkpoints.rend() ? &found->second : nullptr;
}

void DiskInMemory::soon(std::function<void()> work) {
  later_(Nanos(disk_.random.between(1000, kSlowest.count())), [weak = std::weak_ptr(alive_), work = std::move(work)] {
    if (weak.lock() != nullptr) work();
  });
}

void DiskInMemory::queue(std::function<void()> work) {
  queue_long([this, work = std::move(work)] {
    work();
    next();
  });
}

/// `begin` calls next() at the end, which may be later.
void DiskInMemory::queue_long(std::function<void()> begin) {
  queued_.push_back(std::move(begin));
  if (!std::exchange(is_busy_, true)) next();
}

void DiskInMemory::next() {
  is_busy_ = !queued_.empty();
  if (!is_busy_) return;
  auto work = std::move(queued_.front());
  queued_.pop_front();
  soon(std::move(work));
}

base::Status DiskInMemory::failure(const char* doing) {
  return disk_.random.chance(disk_.failing) ? base::error(MV_ESYSTEM, "the disk failed while {}", doing)
                                            : base::Status();
}

void DiskInMemory::begin(const std::string& directory, Told<checkpoint::CheckpointPath> told) {
  queue([this, directory, told] {
    if (auto failed = failure("beginning"); !failed.ok()) return told(failed);
    const uint64_t number = disk_.checkpoints.empty() ? 1 : disk_.checkpoints.rbegin()->first + 1;
    disk_.checkpoints[number];
    told(checkpoint::CheckpointPath{number, fmt::format("{}/checkpoint-{}", directory, number), false});
  });
}

void DiskInMemory::take_over(const std::string& path, Told<bool> told) {
  queue([this, path, told] {
    if (auto failed = failure("taking over"); !failed.ok()) return told(failed);
    const auto found = disk_.checkpoints.find(number_of(path));
    if (found == disk_.checkpoints.end()) return told(base::error(MV_ENOTFOUND, "it was removed"));
    told(found->second.manifest.has_value());
  });
}

void DiskInMemory::complete(const std::string& path, checkpoint::Manifest manifest, uint64_t, Done done) {
  queue([this, path, manifest, done] {
    if (auto failed = failure("completing"); !failed.ok()) return done(failed);
    Disk::Checkpoint& checkpoint = disk_.checkpoints[number_of(path)];
    if (checkpoint.files.size() != manifest.files.size())
      disk_.timeline.violated("a checkpoint was completed without all of its files");
    checkpoint.manifest = manifest;
    done({});
  });
}

void DiskInMemory::discard(const std::string& path, Done done) {
  queue([this, path, done] {
    disk_.checkpoints.erase(number_of(path));
    done({});
  });
}

void DiskInMemory::find(const std::string& path, Told<Found> told) {
  queue([this, path, told] {
    const Disk::Checkpoint* newest = disk_.newest();
    if (newest == nullptr) return told(base::error(MV_ENOTFOUND, "{}: it contains no complete checkpoint", path));
    told(Found{fmt::format("{}/checkpoint-{}", path, newest->manifest->number), *newest->manifest});
  });
}

// ---- files

struct DiskInMemory::Writing {
  NewFile part;
  GivenUp given_up;
  Told<checkpoint::FileEntry> told;
  std::vector<Disk::Table> tables;
  size_t at = 0;
};

void DiskInMemory::write(NewFile part, GivenUp given_up, Told<checkpoint::FileEntry> told) {
  const auto writing = std::make_shared<Writing>(Writing{std::move(part), std::move(given_up), std::move(told), {}, 0});
  for (const auto& table : writing->part.tables) writing->tables.push_back({table.entry, {}});
  queue_long([this, writing] { write_on(writing); });
}

/// Writes a chunk, and later the next one; the values change meanwhile.
void DiskInMemory::write_on(const std::shared_ptr<Writing>& writing) {
  if (*writing->given_up || writing->at == writing->tables.size()) {
    auto failed = *writing->given_up ? base::Status(MV_ECANCELED, "given up") : failure("writing");
    writing->part.tables.clear();
    next();
    if (!failed.ok()) return writing->told(failed);
    disk_.checkpoints[number_of(writing->part.path)].files[writing->part.server] = std::move(writing->tables);
    return writing->told(checkpoint::FileEntry{checkpoint::file_name(writing->part.server), 1, "sim"});
  }
  const shard::Rows rows = writing->part.tables[writing->at].snapshot->next();
  if (rows.count > 0) {
    Disk::Chunk chunk{rows.first, rows.count, rows.ids, copy(rows.values), {}};
    for (const auto& state : rows.states) chunk.states.push_back(copy(state));
    writing->tables[writing->at].chunks.push_back(std::move(chunk));
  } else {
    ++writing->at;
  }
  soon([this, writing] { write_on(writing); });
}

void DiskInMemory::check(const std::string& path, checkpoint::Share, Told<checkpoint::Manifest> told) {
  queue([this, path, told] {
    if (auto failed = failure("checking"); !failed.ok()) return told(failed);
    told(*disk_.checkpoints.at(number_of(path)).manifest);
  });
}

void DiskInMemory::restore(const std::string& path, std::vector<Target> targets, Done done) {
  queue([this, path, targets, done] {
    const Disk::Checkpoint& checkpoint = disk_.checkpoints.at(number_of(path));
    for (const Target& target : targets) {
      if (auto failed = failure("reading"); !failed.ok()) return done(failed);
      if (auto failed = checkpoint::empty_for(target.entry, *target.shard); !failed.ok()) return done(failed);
      for (const auto& [server, tables] : checkpoint.files)
        for (const Disk::Table& table : tables)
          for (const Disk::Chunk& chunk : table.chunks)
            if (table.entry.spec.name == target.entry.spec.name)
              if (auto failed = target.shard->restore(chunk.rows()); !failed.ok()) return done(failed);
    }
    done({});
  });
}

void DiskInMemory::move(std::vector<Move> moves, Done done) {
  queue([moves, done] {
    for (const Move& move : moves)
      if (auto failed = checkpoint::move_table(move.entry, *move.from, *move.to); !failed.ok())
        return done(failed);
    done({});
  });
}

}  // namespace mv::sim
