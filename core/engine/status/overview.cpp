#include "engine/status/overview.hpp"

#include <algorithm>
#include <set>
#include <tuple>

namespace mv::status {

using namespace std::chrono_literals;

namespace {

/// Waits for an answer are shown from this age on.
constexpr base::Nanos kSlowAnswer = 1s;

void note_own_words(TableOverview& table, const table::TableState& own) {
  auto& tallies = table.state.tallies;
  for (const table::Tally& tally : own.tallies) {
    const auto same =
        std::find_if(tallies.begin(), tallies.end(), [&](const table::Tally& t) { return t.worker == tally.worker; });
    const auto at = same - tallies.begin();
    same == tallies.end() ? tallies.push_back(tally) : void(*same = tally);
    table.own_word.resize(tallies.size());
    table.own_word[static_cast<size_t>(at)] = true;
  }
}

using Key = std::tuple<cluster::WaitKind, base::Peer, std::string, uint64_t>;
Key key_of(const cluster::Wait& wait) { return {wait.kind, wait.who, wait.table, wait.number}; }

void merge(cluster::Wait& into, const cluster::Wait& from) {
  into.age = std::max(into.age, from.age);
  into.still = std::max(into.still, from.still);
  for (const cluster::Awaited& each : from.awaited)
    if (std::none_of(into.awaited.begin(), into.awaited.end(),
                     [&](const auto& known) { return known.peer == each.peer; }))
      into.awaited.push_back(each);
}

}  // namespace

void merge(table::TableState& into, const table::TableState& from) {
  for (const table::Tally& tally : from.tallies) {
    const auto same = std::find_if(into.tallies.begin(), into.tallies.end(),
                                   [&](const table::Tally& t) { return t.worker == tally.worker; });
    if (same == into.tallies.end()) {
      into.tallies.push_back(tally);
      continue;
    }
    same->adds = std::max(same->adds, tally.adds);
    same->gets = std::max(same->gets, tally.gets);
    same->clock = std::max(same->clock, tally.clock);
  }
  into.complete = into.complete && from.complete;
  if (from.part) into.part = into.part ? table::PartSize{into.part->stored + from.part->stored, into.part->memory_bytes + from.part->memory_bytes} : from.part;
}

std::vector<TableOverview> tables_of(const Overview& overview) {
  std::map<std::string, TableOverview> tables;
  for (const auto& [peer, report] : overview.reports)
    for (const table::TableState& held : report.held) {
      const auto [known, is_new] = tables.try_emplace(held.name, TableOverview{held, {}, {}});
      if (!is_new) merge(known->second.state, held);
      if (held.part) known->second.parts[peer] = *held.part;
    }
  for (const auto& [peer, report] : overview.reports)
    for (const table::TableState& own : report.own) {
      auto known = tables.find(own.name);
      if (known == tables.end())
        known = tables.emplace(own.name, TableOverview{{own.name, own.what, own.consistency, true, {}, {}}, {}, {}}).first;
      note_own_words(known->second, own);
    }
  std::vector<TableOverview> list;
  for (auto& [name, table] : tables) {
    table.own_word.resize(table.state.tallies.size());
    list.push_back(std::move(table));
  }
  return list;
}

std::vector<GroupOverview> groups_of(const Overview& overview) {
  std::map<uint64_t, GroupOverview> groups;
  for (const auto& [peer, report] : overview.reports)
    for (const collective::GroupState& told : report.groups) {
      GroupOverview& group =
          groups.try_emplace(told.id, GroupOverview{told.id, told.ranks, told.transport, {}, {}, {}}).first->second;
      group.operations[peer] = told.operations;
      if (group.broken.empty()) group.broken = told.broken;
      if (group.tuning.empty()) group.tuning = told.tuning;
    }
  std::vector<GroupOverview> list;
  for (auto& [id, group] : groups) list.push_back(std::move(group));
  return list;
}

std::vector<cluster::Wait> waits_of(const Overview& overview) {
  std::map<Key, cluster::Wait> merged;
  std::set<std::pair<base::Peer, std::string>> explained;
  for (const auto& [peer, report] : overview.reports)
    for (const cluster::Wait& wait : report.waits) {
      const auto [known, is_new] = merged.try_emplace(key_of(wait), wait);
      if (!is_new) merge(known->second, wait);
      if (wait.kind != cluster::WaitKind::kAnswer) explained.emplace(wait.who, wait.table);
    }
  std::vector<cluster::Wait> waits;
  for (auto& [key, wait] : merged)
    if (wait.kind != cluster::WaitKind::kAnswer ||
        (wait.age >= kSlowAnswer && !explained.contains({wait.who, wait.table})))
      waits.push_back(std::move(wait));
  std::stable_sort(waits.begin(), waits.end(), [](const auto& a, const auto& b) { return a.age > b.age; });
  return waits;
}

}  // namespace mv::status
