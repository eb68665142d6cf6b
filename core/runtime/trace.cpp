// Runtime: the node's last events as a trace. A process is a rank; a track is a peer and a direction.

#include <algorithm>
#include <ctime>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "base/json_writer.hpp"
#include "runtime/runtime.hpp"
#include "telemetry/chrome_trace.hpp"

namespace mv::runtime {

namespace {

using base::TraceEvent;
using base::TraceKind;

/// The track of messages, by the peer's rank and the direction.
uint64_t track_of(uint64_t rank, bool sent) { return 1 + 2 * rank + (sent ? 0 : 1); }

/// The id of a message's arrow, the same on both sides. Messages without a number have no arrow.
uint64_t flow_of(base::Peer from, base::Peer to, const TraceEvent& event) {
  uint64_t hash = 0xcbf2'9ce4'8422'2325;
  for (const uint64_t word : {from, to, event.seq, uint64_t{event.what}}) hash = (hash ^ word) * 0x0000'0100'0000'01b3 + (hash >> 29);
  return hash;
}

base::Nanos since_1970() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return std::chrono::seconds(now.tv_sec) + base::Nanos(now.tv_nsec);
}

/// Everything that the writer needs, copied on the loop.
struct Taken {
  std::vector<TraceEvent> events;
  cluster::View view;
  std::unordered_map<base::Peer, uint32_t> ranks;
  std::map<uint16_t, std::string> tables;  ///< names, by TraceEvent::table
  base::Peer self = base::kNobody;
  int64_t rank = 0;
  std::optional<base::TickClock::Scale> scale;
  base::Nanos now{0}, wall{0};
  std::vector<cluster::Wait> waits;       ///< that have not ended: at this node's gates, and of its operations in groups
  bool operations_block = false;          ///< a group in shared memory: its operations wait outside of the loop
  std::vector<cluster::NewsItem> news;    ///< what has happened to the membership
  std::vector<uint64_t> blocked;          ///< when the unfinished waits of callers' threads began, in ticks
};

/// The peers of one wait that are drawn: as those of a barrier, they may be many.
constexpr size_t kMostAwaited = 4;

std::string name_of(const Taken& taken, base::Peer peer) {
  const cluster::Member* member = taken.view.find(peer);
  if (member != nullptr) return taken.view.short_name(peer) + fmt::format(" (rank {})", member->rank);
  const auto rank = taken.ranks.find(peer);
  return rank != taken.ranks.end() ? fmt::format("rank {}, earlier incarnation", rank->second) : "unknown";
}

bool is_in_ticks(const TraceEvent& event) {
  return event.kind == TraceKind::kSent || event.kind == TraceKind::kReceived || event.kind == TraceKind::kBlocked;
}

base::Nanos time_of(const Taken& taken, const TraceEvent& event, uint64_t at) {
  return is_in_ticks(event) ? (*taken.scale)(at) : base::Nanos(at);
}

class Writer {
 public:
  Writer(const Taken& taken, base::Nanos origin)
      : taken_(taken), trace_(taken.rank, name_of(taken, taken.self), origin, taken.wall - (taken.now - origin)) {
    if (const cluster::Member* self = taken.view.find(taken.self)) trace_.set_host(self->host);
    find_changes();
  }

  void write(const TraceEvent& event) {
    switch (event.kind) {
      case TraceKind::kSent:
      case TraceKind::kReceived:
        return message(event);
      case TraceKind::kCall:
        return span("call", table::kUseNames[event.what], event, "");
      case TraceKind::kGate:
        return gate(event);
      case TraceKind::kBlocked:
        return span("blocked", "blocked", event, "");
      case TraceKind::kGroup:
        return group(event);
      case TraceKind::kPart:
        return part(event);
    }
  }
  /// The waits that have not ended. No ring contains them, because a wait is noted at its end.
  void write_open() {
    for (const uint64_t since : taken_.blocked) open("blocked", "blocked", (*taken_.scale)(since), "");
    for (const cluster::Wait& wait : taken_.waits) {
      const base::Nanos since = taken_.now - wait.age;
      const char* const name = cluster::kWaitNames.at(static_cast<size_t>(wait.kind));
      if (wait.kind == cluster::WaitKind::kCollective && taken_.operations_block) open("blocked", name, since, "");
      size_t written = 0;
      for (const cluster::Awaited& awaited : wait.awaited) {
        if (awaited.peer == wait.who) continue;
        if (written++ == kMostAwaited) break;
        open("open wait", name, since, who("of", wait.who) + ", " + who("by", awaited.peer));
        const std::string waiting = base::json_quoted(name_of(taken_, wait.who));
        open("wait", "waits for " + name_of(taken_, awaited.peer), since, fmt::format(R"("waiting": {})", waiting));
      }
    }
  }
  /// What has happened to the membership, as far as the events go back.
  void write_news(base::Nanos origin) {
    for (const auto& [event, at] : taken_.news) {
      if (at < origin) continue;
      const cluster::Member* const member = taken_.view.at(event.rank);
      std::string what = cluster::kChangeNames.at(static_cast<size_t>(event.change));
      std::ranges::replace(what, '_', ' ');
      trace_.instant("membership", fmt::format("{} {}", member != nullptr ? taken_.view.short_name(member->peer) : fmt::format("rank {}", event.rank), what), at,
                     fmt::format(R"("rank": {}, "epoch": {}, "why": {})", event.rank, event.epoch, base::json_quoted(event.reason)));
    }
  }
  std::string take() { return trace_.take(); }

 private:
  void open(const char* category, std::string_view name, base::Nanos since, const std::string& arguments) {
    trace_.span(category, ++spans_, name, since, taken_.now, arguments + (arguments.empty() ? "" : ", ") + R"("open": true)");
  }

  void span(const char* category, std::string_view name, const TraceEvent& event, const std::string& arguments) {
    trace_.span(category, ++spans_, name, time_of(taken_, event, event.begin), time_of(taken_, event, event.end), arguments);
  }

  /// `name` and `name`_rank, which tools read, of a peer.
  std::string who(std::string_view name, base::Peer peer) const {
    const auto rank = taken_.ranks.find(peer);
    const std::string number = rank != taken_.ranks.end() ? fmt::format("{}", rank->second) : "null";
    return fmt::format(R"("{}": {}, "{}_rank": {})", name, base::json_quoted(name_of(taken_, peer)), name, number);
  }

  void gate(const TraceEvent& event) {
    const base::Peer opener = event.seq != base::kNobody ? event.seq : taken_.self;
    span("gate", wire::EnumNameBody(static_cast<wire::Body>(event.what)), event, who("of", event.peer) + ", " + who("by", opener));
    waits(name_of(taken_, event.peer), opener, event);
  }

  void group(const TraceEvent& event) {
    const double micros = static_cast<double>(event.seq) / 1000;
    const std::string waited = event.seq > 0 ? fmt::format(R"({}, "waited_us": {:.3f})", who("for", event.peer), micros) : "";
    const char* const category = event.peer == base::kNobody ? "group by messages" : "group";
    span(category, collective::kind_name(static_cast<collective::Kind>(event.what)), event, waited);
    operations_[event.begin] = {category, spans_};
    if (event.seq == 0) return;
    TraceEvent part = event;  // where in the operation it waited isn't known: drawn at its beginning
    part.end = std::min(event.end, event.begin + event.seq);
    waits(name_of(taken_, taken_.self), event.peer, part);
  }

  /// With the id of its operation, and so drawn below it. The operation may have left the ring.
  void part(const TraceEvent& event) {
    const auto operation = operations_.find(event.seq);
    if (operation == operations_.end()) return;
    const auto [category, id] = operation->second;
    trace_.span(category, id, base::kTracePartNames.at(event.what), base::Nanos(event.begin), base::Nanos(event.end), R"("part": true)");
  }

  /// Viewers colour by name: each peer that is waited for has its colour.
  void waits(const std::string& waiting, base::Peer on, const TraceEvent& event) {
    span("wait", "waits for " + name_of(taken_, on), event, fmt::format(R"("waiting": {})", base::json_quoted(waiting)));
  }

  void message(const TraceEvent& event) {
    const bool sent = event.kind == TraceKind::kSent;
    const uint64_t track = track_to(event.peer, sent);
    if (named_.insert(track).second) trace_.track(track, fmt::format("{} {}", sent ? "to" : "from", name_of(taken_, event.peer)));
    const base::Nanos begin = (*taken_.scale)(event.begin), end = (*taken_.scale)(event.end);
    std::string arguments = fmt::format(R"("bytes": {}, "number": {})", event.bytes, event.seq);
    if (const auto table = taken_.tables.find(event.table); table != taken_.tables.end())
      arguments += fmt::format(R"(, "table": {})", base::json_quoted(table->second));
    trace_.slice(track, wire::EnumNameBody(static_cast<wire::Body>(event.what)), begin, end, arguments);
    if (event.seq == 0) return;
    if (!sent) return trace_.arrives(track, flow_of(event.peer, taken_.self, event), begin);
    trace_.leaves(track, flow_of(taken_.self, event.peer, event), begin);
    if (static_cast<wire::Body>(event.what) == wire::Body::Reply) seen(event, track, begin);
  }

  /// The track of a peer. One that never was a member has the track after those of all ranks.
  uint64_t track_to(base::Peer peer, bool sent) const {
    const auto rank = taken_.ranks.find(peer);
    return track_of(rank != taken_.ranks.end() ? rank->second : taken_.view.members.size(), sent);
  }

  /// Finds what seen() needs. An event is noted when its processing ends, so an answer stands before its request.
  void find_changes() {
    for (const TraceEvent& event : taken_.events) {
      if (event.kind != TraceKind::kReceived || event.table == 0) continue;
      if (static_cast<wire::Body>(event.what) == wire::Body::Get)
        gets_[{event.peer, event.seq}] = event.table;
      else
        changes_[event.table].emplace(event.begin, event.peer);
    }
  }

  /// An arrow from the last change of a table to the answer of a get, if another process made the change.
  void seen(const TraceEvent& answer, uint64_t track, base::Nanos at) {
    const auto get = gets_.find({answer.peer, answer.seq});
    if (get == gets_.end()) return;
    const auto& changes = changes_[get->second];
    auto change = changes.upper_bound(answer.begin);
    if (change == changes.begin() || (--change)->second == answer.peer) return;
    trace_.seen(flow_of(taken_.self, answer.peer, answer) + 1, track_to(change->second, false), (*taken_.scale)(change->first), track, at);
  }

  const Taken& taken_;
  telemetry::ChromeTrace trace_;
  std::set<uint64_t> named_;
  std::map<std::pair<base::Peer, uint64_t>, uint16_t> gets_;        ///< tables, by client and number
  std::map<uint16_t, std::map<uint64_t, base::Peer>> changes_;      ///< by table and ticks: the client
  std::map<uint64_t, std::pair<const char*, uint64_t>> operations_;  ///< categories and ids of operations, by their begin
  uint64_t spans_ = 0;
};

}  // namespace

base::Result<std::string> Runtime::trace_text() {
  if (!trace_.on())
    return base::Status(MV_ESTATE, "this process keeps no events: set trace_events (POLYVERSO_TRACE_EVENTS), or metrics, when the node is started");
  Taken taken;
  read_on_loop([&] {
    learn_ranks();
    taken.events = trace_.copy();
    taken.view = member_->cluster().view();
    taken.ranks = ranks_;
    for (const TraceEvent& event : taken.events) {
      if (event.table == 0 || taken.tables.contains(event.table)) continue;
      if (const auto shard = member_->shards().shard(event.table - 1u)) taken.tables[event.table] = shard->spec().name;
    }
    taken.self = member_->self();
    taken.rank = identity_.rank;
    const status::Report report = member_->status().report();
    for (const cluster::Wait& wait : report.waits)
      if (wait.kind != cluster::WaitKind::kAnswer) taken.waits.push_back(wait);
    taken.operations_block = std::ranges::any_of(report.groups, [](const collective::GroupState& group) { return group.transport == "shm"; });
    taken.blocked = callers_trace_.open();
    const auto& news = member_->cluster().news().items();
    taken.news.assign(news.begin(), news.end());
    taken.scale = trace_.clock().scale();
    taken.now = loop_.now();
    taken.wall = since_1970();
  });
  if (!taken.scale) return ended();
  const std::vector<TraceEvent> of_callers = callers_trace_.copy();
  taken.events.insert(taken.events.end(), of_callers.begin(), of_callers.end());
  base::Nanos origin = taken.now;
  for (const TraceEvent& event : taken.events) origin = std::min(origin, time_of(taken, event, event.begin));
  for (const uint64_t since : taken.blocked) origin = std::min(origin, (*taken.scale)(since));
  for (const cluster::Wait& wait : taken.waits) origin = std::min(origin, taken.now - wait.age);
  Writer writer(taken, origin);
  for (const TraceEvent& event : taken.events) writer.write(event);
  writer.write_open();
  writer.write_news(origin);
  return writer.take();
}

}  // namespace mv::runtime
