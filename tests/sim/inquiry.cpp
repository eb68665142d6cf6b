// The part of a worker's program that concerns tables as a whole: clocks, updaters, scans.

#include "script.hpp"

namespace mv::sim {

namespace {
constexpr size_t kMostScanned = 12;  ///< rows at once, so that a scan takes several messages
}  // namespace

/// While no change is open, everything that this worker has done is visible everywhere: readings that begin now must show it.
void Script::note_acknowledged() {
  const bool is_cut_off = !member_.cluster().why_cut_off().ok();  // forgotten changes have failed
  if (world_.changes_may_fail() || world_.is_gone(life_) || is_cut_off) return;
  for (size_t table = 0; table < tables_.size(); ++table) {
    if (tables_[table]->open_changes != 0) continue;
    world_.ledger(table).settled(life_, world_.ledger(table).begun(life_));
    world_.ledger(table).clock_settled(life_);
  }
}

/// Like mv_table_clock().
void Script::tick_clock(size_t table) {
  table::TableView& view = *tables_[table];
  const uint64_t clock = view.clock.fetch_add(1) + 1;
  say(fmt::format("begins iteration {} of \"{}\"", view.now(), view.spec.name));
  world_.ledger(table).ticked(life_, view.now());
  if (view.consistency == shard::Consistency::kStale) member_.tables().catalogue().clock(tables_[table], clock);
  world_.touched(member_.self());
}

// ---- changing the rate

class Script::Switch final : public base::Operation {
 public:
  Switch(Script& script, size_t table) : script_(script), table_(table) {}
  void ended(const base::Status& status) override { script_.updater_set(table_, status); }

 private:
  Script& script_;
  const size_t table_;
};

void Script::set_updater(size_t table) {
  const TablePlan& plan = world_.ledger(table).plan();
  shard::UpdaterSpec updater = plan.spec.updater;
  updater.parameters.front() = plan.later_rate;
  say(fmt::format("sets the rate of \"{}\" to {}", plan.spec.name, plan.later_rate));
  note_acknowledged();
  world_.ledger(table).switches(life_);
  shard::Shard* own = own_shard(table);
  if (own != nullptr)
    if (const base::Status failed = own->set_updater(updater); !failed.ok())
      return violated("set_updater: " + failed.text());
  tables_[table]->open_changes.fetch_add(1, std::memory_order_relaxed);
  waiting_ = true;
  member_.tables().catalogue().set_updater(tables_[table], updater, own != nullptr ? own_server() : table::kNoServer,
                               std::make_shared<Switch>(*this, table));
  world_.touched(member_.self());
}

void Script::updater_set(size_t table, const base::Status& status) {
  say("new updater: " + (status.ok() ? "set" : status.text()));
  waiting_ = false;
  if (status.ok())
    world_.ledger(table).switched();
  else if (status.code() == MV_EPEERLOST)
    give_up(status);
  else
    violated("set_updater: " + status.text());
  go();
}

// ---- scans

/// Goes through all servers, a few rows at a time, while others change the table.
struct Script::Scan {
  size_t table = 0, server = 0;
  int64_t cursor = 0;
  Reading reading;
  std::vector<uint32_t> times;
  std::vector<int64_t> rows;
  std::vector<std::byte> values;
};

void Script::scan(size_t table) {
  note_acknowledged();
  const Ledger& ledger = world_.ledger(table);
  const auto scan = std::make_shared<Scan>();
  scan->table = table;
  scan->reading = ledger.begin(fmt::format("{}'s scan of \"{}\"", name_, ledger.plan().spec.name), life_, false,
                               tables_[table]->consistency, 0, 0);
  const size_t most = 1 + random_.below(kMostScanned);
  scan->rows.resize(most);
  if (random_.chance(0.8)) scan->values.resize(most * tables_[table]->spec.row_bytes());
  say(fmt::format("scans \"{}\", {} rows at a time", ledger.plan().spec.name, most));
  waiting_ = true;
  scan_on(scan);
}

void Script::scan_on(const std::shared_ptr<Scan>& scan) {
  member_.tables().inquiries().scan(tables_[scan->table], scan->server, scan->cursor, scan->rows, scan->values, base::kNever,
                        [this, scan](const base::Result<table::ScannedRows>& chunk) { chunk_scanned(scan, chunk); });
  world_.touched(member_.self());
}

void Script::chunk_scanned(const std::shared_ptr<Scan>& scan, const base::Result<table::ScannedRows>& chunk) {
  if (!chunk.ok()) {
    waiting_ = false;
    if (chunk.status().code() != MV_EPEERLOST) violated("scan: " + chunk.status().text());
    give_up(chunk.status());
    return go();
  }
  Ledger& ledger = world_.ledger(scan->table);
  const auto [found, next] = chunk.value();
  auto values = scan->values;
  if (!values.empty()) values.resize(found * tables_[scan->table]->spec.row_bytes());
  ledger.scanned(scan->reading, std::span(scan->rows).first(found), values, scan->times);
  scan->cursor = next >= 0 ? next : 0;
  if (next < 0) ++scan->server;
  if (scan->server < tables_[scan->table]->servers.size()) {
    world_.later(member_.self(), Nanos(random_.between(0, 300'000)), [weak = weak_from_this(), scan] {
      if (const auto self = weak.lock()) self->scan_on(scan);
    });
    return;
  }
  ledger.scan_over(scan->reading, scan->times);
  say("scan: done");
  waiting_ = false;
  go();
}

}  // namespace mv::sim
