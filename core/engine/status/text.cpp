// The overview as text, for people.

#include <algorithm>
#include <array>
#include <map>

#include "engine/status/overview.hpp"

namespace mv::status {

using namespace std::chrono_literals;

namespace {

constexpr size_t kTalliesShown = 64, kWaitsShown = 40, kAwaitedShown = 8;
constexpr base::Nanos kSilent = 2s;

/// Replaces control characters in texts from other processes, which a terminal would take as commands.
std::string clean(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f; }, '?');
  return text;
}

/// The same for each line of a text.
void append_lines(std::string& to, std::string_view text) {
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    to += clean(std::string(text.substr(at, end - at))) + "\n";
    at = end + 1;
  }
}

std::string in_seconds(base::Nanos span) { return fmt::format("{:.1f} s", base::seconds(span)); }

std::string readable(double bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < kUnits.size(); ++unit) bytes /= 1024;
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

using Row = std::vector<std::string>;

/// Appends rows as aligned columns; those marked in `right` are right-aligned.
void append_rows(std::string& text, const std::vector<Row>& rows, const std::vector<bool>& right) {
  std::vector<size_t> widths(rows.front().size());
  for (const Row& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i)
      line += right[i] ? fmt::format("{:>{}}  ", row[i], widths[i]) : fmt::format("{:<{}}  ", row[i], widths[i]);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
}

std::string roles_of(const cluster::View& view, const cluster::Member& member) {
  std::string roles;
  if (member.is_worker()) roles = fmt::format("worker {}", view.worker_id(member.peer));
  if (member.is_server()) roles += fmt::format("{}server {}", roles.empty() ? "" : ", ", view.server_id(member.peer));
  return roles.empty() ? "scheduler" : roles;
}

std::string state_of(const Overview& overview, const cluster::Member& member) {
  if (member.state == cluster::MemberState::kLost) return member.drained ? "left" : "lost";
  if (member.draining) return "draining";
  const auto report = overview.reports.find(member.peer);
  if (report != overview.reports.end())
    return member.state == cluster::MemberState::kFinished ? "finished"
           : report->second.phase == "ready"         ? "here"
                                                     : clean(report->second.phase);
  if (member.state == cluster::MemberState::kFinished) return "finished";
  const auto silence = overview.silence.find(member.peer);
  if (silence == overview.silence.end()) return "not connected";
  return silence->second >= kSilent ? "silent for " + in_seconds(silence->second) : "did not answer";
}

/// "shm 2, tcp 1"
std::string transports_text(const Report& report) {
  std::string transports;
  for (const auto& [transport, count] : transports_of(report))
    transports += fmt::format("{}{} {}", transports.empty() ? "" : ", ", clean(transport), count);
  return transports;
}

/// Each choice of transports once, with the ranks that have made it if there are several.
void append_choices(std::string& text, const Overview& overview) {
  constexpr size_t kChoicesShown = 4, kRanksShown = 8;
  std::map<std::string, std::vector<uint32_t>> choices;
  for (const cluster::Member& member : overview.view.members)
    if (const auto found = overview.reports.find(member.peer); found != overview.reports.end() && !found->second.choice.empty())
      choices[found->second.choice].push_back(member.rank);
  size_t shown = 0;
  for (const auto& [choice, ranks] : choices) {
    if (++shown > kChoicesShown) break;
    std::string who;
    if (choices.size() > 1) {
      for (size_t i = 0; i < std::min(ranks.size(), kRanksShown); ++i) who += fmt::format("{}{}", i == 0 ? " of rank " : ", ", ranks[i]);
      if (ranks.size() > kRanksShown) who += fmt::format(" and {} more", ranks.size() - kRanksShown);
    }
    text += fmt::format("transports{}: {}\n", who, clean(choice));
  }
}

/// How the asked member stands with the keeper.
void append_keeper(std::string& text, const Overview& overview) {
  for (const cluster::Member& member : overview.view.members)
    if (const auto found = overview.reports.find(member.peer); found != overview.reports.end() && !found->second.keeper.empty())
      text += fmt::format("keeper, as of rank {}: {}\n", member.rank, clean(found->second.keeper));
}

/// The reasons of the losses, which are too long for a column.
void append_losses(std::string& text, const cluster::View& view) {
  constexpr size_t kLossesShown = 16;
  size_t lost = 0;
  for (const cluster::Member& member : view.members)
    if (member.state == cluster::MemberState::kLost && !member.is_vacant() && ++lost <= kLossesShown)
      text += fmt::format("rank {} {}: {}\n", member.rank, member.drained ? "has left" : "is lost", clean(member.why));
  if (lost > kLossesShown) text += fmt::format("and {} more losses\n", lost - kLossesShown);
}

void append_members(std::string& text, const Overview& overview) {
  std::vector<Row> rows{
      {"rank", "who", "process", "state", "up", "sent", "received", "sent/s", "received/s", "under way", "transports"}};
  for (const cluster::Member* const place : overview.view.taken_places()) {
    const cluster::Member& member = *place;
    Row row{fmt::format("{}", member.rank), roles_of(overview.view, member),
            clean(fmt::format("{} on {}", member.pid, member.host)), state_of(overview, member)};
    const auto found = overview.reports.find(member.peer);
    if (found != overview.reports.end()) {
      const Report& report = found->second;
      const PeerState total = total_of(report);
      for (std::string cell :
           {in_seconds(report.uptime), readable(static_cast<double>(total.path.sent)),
            readable(static_cast<double>(total.path.received)), readable(total.send_rate), readable(total.receive_rate),
            readable(static_cast<double>(report.in_flight)), transports_text(report)})
        row.push_back(std::move(cell));
    }
    row.resize(rows.front().size());
    rows.push_back(std::move(row));
  }
  append_rows(text, rows, {true, false, false, false, true, true, true, true, true, true, false});
  append_choices(text, overview);
  append_keeper(text, overview);
  append_losses(text, overview.view);
}

void append_tables(std::string& text, const Overview& overview) {
  std::vector<Row> rows{{"table", "what", "consistency", "worker", "adds", "gets", "clock"}};
  size_t left_out = 0;
  for (const auto& [table, own_word, parts] : tables_of(overview)) {
    Row first{clean(table.name), clean(table.what) + (table.complete ? "" : " (being created)"),
              kConsistencyNames[static_cast<size_t>(table.consistency)]};
    auto tallies = table.tallies;
    std::sort(tallies.begin(), tallies.end(), [](const auto& a, const auto& b) { return a.worker < b.worker; });
    if (tallies.empty()) rows.push_back({first[0], first[1], first[2], "", "", "", ""});
    for (const table::Tally& tally : tallies) {
      if (rows.size() > kTalliesShown) {
        ++left_out;
        continue;
      }
      rows.push_back({first[0], first[1], first[2], fmt::format("{}", tally.worker), fmt::format("{}", tally.adds),
                      fmt::format("{}", tally.gets), fmt::format("{}", tally.clock)});
      first = {"", "", ""};
    }
  }
  if (rows.size() == 1) return;
  text += "\n";
  append_rows(text, rows, {false, false, false, true, true, true, true});
  if (left_out > 0) text += fmt::format("and {} more rows\n", left_out);
}

void append_reported(std::string& text, const Overview& overview) {
  constexpr size_t kNumbersShown = 64;
  std::map<std::string, std::vector<Row>> by_name;
  size_t left_out = 0;
  for (const cluster::Member& member : overview.view.members) {
    const auto found = overview.reports.find(member.peer);
    if (found == overview.reports.end()) continue;
    for (const ReportedNumber& each : found->second.reported)
      by_name[clean(each.name)].push_back({"", overview.view.short_name(member.peer), fmt::format("{:.6g}", each.value), fmt::format("{}", each.count), in_seconds(each.age) + " ago"});
  }
  if (by_name.empty()) return;
  std::vector<Row> rows{{"reported", "by", "latest", "count", "when"}};
  for (auto& [name, of_members] : by_name) {
    of_members.front()[0] = name;
    for (Row& row : of_members) rows.size() <= kNumbersShown ? rows.push_back(std::move(row)) : static_cast<void>(++left_out);
  }
  text += "\n";
  append_rows(text, rows, {false, false, true, true, true});
  if (left_out > 0) text += fmt::format("and {} more numbers\n", left_out);
}

/// With replicas, appends the servers that serve each part of the tables and keep its copy.
void append_parts(std::string& text, const Overview& overview) {
  constexpr size_t kPartsShown = 64;
  const cluster::View& view = overview.view;
  if (overview.replicas == 0 && !view.has_departures()) return;
  const auto name = [&](base::Peer peer) { return peer == base::kNobody ? std::string("nobody") : fmt::format("server {}", view.server_id(peer)); };
  const auto backups = [&](const cluster::Member& server) {
    std::string names;
    const auto chain = view.chain_of(server);
    for (size_t i = 1; i < chain.size(); ++i) names += (names.empty() ? "" : ", ") + name(chain[i]);
    if (server.next_backup != 0) names += fmt::format("{}{}, copying", names.empty() ? "" : ", ", name(view.next_backup_of(server)));
    return names.empty() ? name(base::kNobody) : names;
  };
  std::vector<Row> rows{{"tables of", "served by", overview.replicas > 1 ? "back-ups" : "back-up"}};
  const auto servers = view.servers();
  for (const cluster::Member* server : std::span(servers).first(std::min(servers.size(), kPartsShown)))
    rows.push_back({name(server->peer), name(view.serving(*server)), backups(*server)});
  text += "\n";
  append_rows(text, rows, {false, false, false});
  if (servers.size() > kPartsShown) text += fmt::format("and {} more servers\n", servers.size() - kPartsShown);
}

std::string who_of(const cluster::View& view, const cluster::MembershipEvent& event) {
  const cluster::Member* const member = view.at(event.rank);
  return member != nullptr ? fmt::format("{} (rank {})", roles_of(view, *member), event.rank) : fmt::format("rank {}", event.rank);
}

/// Appends the latest changes of the membership.
void append_news(std::string& text, const Overview& overview) {
  constexpr size_t kNewsShown = 16;
  const auto& news = overview.news;
  if (news.empty()) return;
  std::vector<Row> rows{{"when", "who", "what", "epoch", "why"}};
  for (const Overview::News& item : std::span(news).last(std::min(news.size(), kNewsShown))) {
    std::string what = cluster::kChangeNames.at(static_cast<size_t>(item.event.change));
    std::ranges::replace(what, '_', ' ');
    rows.push_back({in_seconds(item.age) + " ago", who_of(overview.view, item.event), what, fmt::format("{}", item.event.epoch), clean(item.event.reason)});
  }
  text += "\n";
  append_rows(text, rows, {true, false, false, true, false});
}

/// Appends one row for each group, with as many ranks and operations as fit on a line.
void append_groups(std::string& text, const Overview& overview) {
  constexpr size_t kGroupsShown = 16, kRanksShown = 8;
  const auto groups = groups_of(overview);
  if (groups.empty()) return;
  std::vector<Row> rows{{"group", "ranks", "transport", "operations", "state"}};
  for (const GroupOverview& group : std::span(groups).first(std::min(groups.size(), kGroupsShown))) {
    std::string members, operations;
    const bool all = group.ranks.size() <= kRanksShown;
    for (const base::Peer peer : std::span(group.ranks).first(std::min(group.ranks.size(), kRanksShown))) {
      const auto told = group.operations.find(peer);
      members += fmt::format("{}{}", members.empty() ? "" : ", ", overview.view.short_name(peer));
      operations += fmt::format("{}{}", operations.empty() ? "" : ", ", told != group.operations.end() ? fmt::format("{}", told->second) : "?");
    }
    rows.push_back({members + (all ? "" : ", …"), fmt::format("{}", group.ranks.size()), clean(group.transport), operations + (all ? "" : ", …"),
                    group.broken.empty() ? "works" : "broken: " + clean(group.broken)});
  }
  text += "\n";
  append_rows(text, rows, {false, true, false, false, false});
  for (const GroupOverview& group : std::span(groups).first(std::min(groups.size(), kGroupsShown)))
    if (group.transport == "shm" && !group.tuning.empty() && !group.ranks.empty())
      text += fmt::format("all-reduces of the group of {}: {}\n", overview.view.short_name(group.ranks.front()), clean(group.tuning));
  if (groups.size() > kGroupsShown) text += fmt::format("and {} more groups\n", groups.size() - kGroupsShown);
}

}  // namespace

std::string sentence_of(const Overview& overview, const cluster::Wait& wait) {
  std::string line =
      fmt::format("{} waits {} in {} for ", overview.view.short_name(wait.who), in_seconds(wait.age), clean(cluster::describe(wait)));
  if (wait.awaited.empty()) line += "its own values, which are in transit";
  for (size_t i = 0; i < std::min(wait.awaited.size(), kAwaitedShown); ++i) {
    const auto& [peer, what] = wait.awaited[i];
    const auto silence = overview.silence.find(peer);
    line += fmt::format("{}{} ({}", i > 0 ? ", " : "", overview.view.short_name(peer), clean(what));
    if (silence != overview.silence.end() && peer != overview.seen_by)
      line += fmt::format("; last heard {} ago", in_seconds(silence->second));
    line += ")";
  }
  if (wait.awaited.size() > kAwaitedShown) line += fmt::format(" and {} more", wait.awaited.size() - kAwaitedShown);
  return line;
}

std::string to_text(const Overview& overview) {
  const cluster::View& view = overview.view;
  if (view.members.empty())
    return fmt::format("the cluster is forming: {}\n",
                       overview.missing.empty() ? "the master has not answered yet" : overview.missing);
  const cluster::Member* seer = view.find(overview.seen_by);
  const auto plural = [](size_t count, const char* what) {
    return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
  };
  const auto taken = view.taken_places();
  const auto count = [&](auto is_one, size_t most, const char* what) {
    const auto there = static_cast<size_t>(std::ranges::count_if(taken, is_one));
    return plural(there, what) + (there < most ? fmt::format(" (at most {})", most) : "");
  };
  std::string text = fmt::format("{}, {}, {} mode; seen by rank {}\n", count(&cluster::Member::is_worker, view.workers().size(), "worker"),
                                 count([](const cluster::Member* member) { return member->is_server() && !member->drained; }, view.servers().size(), "server"), view.sync ? "sync" : "async",
                                 seer != nullptr ? seer->rank : 0);
  append_members(text, overview);
  append_tables(text, overview);
  append_parts(text, overview);
  append_groups(text, overview);
  append_reported(text, overview);
  append_news(text, overview);
  const auto waits = waits_of(overview);
  text += waits.empty() ? "\nno call is waiting\n" : "\n";
  for (size_t i = 0; i < std::min(waits.size(), kWaitsShown); ++i) text += sentence_of(overview, waits[i]) + "\n";
  if (waits.size() > kWaitsShown) text += fmt::format("and {} more waits\n", waits.size() - kWaitsShown);
  return text;
}

std::string log_text(const base::LogTail& tail) {
  std::string text;
  for (const std::string& line : tail.lines) append_lines(text, line);
  if (tail.left_out > 0) text += fmt::format("{} further lines were not kept\n", tail.left_out);
  return text.empty() ? "no lines\n" : text;
}

}  // namespace mv::status
