#include "checkpoint/restore.hpp"

namespace mv::checkpoint {

namespace {
constexpr size_t kErasedAtOnce = 4096;
}  // namespace

base::Status empty_for(const TableEntry& entry, shard::Shard& shard) {
  if (auto failed = shard.set_updater(entry.updater); !failed.ok()) return failed;
  if (!entry.spec.is_keyed()) return {};
  for (int64_t cursor = 0; cursor >= 0;) {
    const auto scanned = shard.scan(cursor, kErasedAtOnce, false);
    if (!scanned.ok()) return scanned.status();
    if (!scanned.value().rows.empty()) shard.change_rows(shard::Write::Erase, shard::kNoWorker, scanned.value().rows, nullptr);
    cursor = scanned.value().next;
  }
  return {};
}

base::Status restore_table(const Examined& from, const TableEntry& entry, shard::Shard& shard) {
  if (auto failed = empty_for(entry, shard); !failed.ok()) return failed;
  // Each server has counted the updates that reached it. The number of servers may differ now, so all continue from
  // the highest count.
  shard::Mark farthest;
  for (const auto& file : from.files) {
    if (!file) continue;
    const PartTable* const table = file->find(entry.spec.name);
    if (table == nullptr) continue;
    if (table->entry.mark.updates > farthest.updates) farthest = table->entry.mark;
    const auto take = [&](const shard::Rows& rows) { return shard.restore(rows); };
    if (auto failed = file->read(*table, shard.rows(), take); !failed.ok()) return failed;
  }
  shard.set_mark(farthest);
  return {};
}

base::Status move_table(const TableEntry& entry, shard::Shard& from, shard::Shard& to) {
  if (auto failed = empty_for(entry, to); !failed.ok()) return failed;
  const auto snapshot = from.snapshot();
  if (!snapshot.ok()) return snapshot.status();
  for (;;) {
    const shard::Rows rows = snapshot.value()->next();
    if (rows.count == 0) break;
    if (auto failed = to.restore(rows); !failed.ok()) return failed;
  }
  to.set_mark(from.mark());
  return {};
}

}  // namespace mv::checkpoint
