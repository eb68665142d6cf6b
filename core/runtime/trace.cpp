// Runtime: the node's last events as a trace. A process is a rank; a track is a peer and a direction.

#include <ctime>
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
  base::Peer self = base::kNobody;
  int64_t rank = 0;
  std::optional<base::TickClock::Scale> scale;
  base::Nanos now{0}, wall{0};
};

std::string name_of(const Taken& taken, base::Peer peer) {
  const cluster::Member* member = taken.view.find(peer);
  if (member != nullptr) return taken.view.short_name(peer) + fmt::format(" (rank {})", member->rank);
  const auto rank = taken.ranks.find(peer);
  return rank != taken.ranks.end() ? fmt::format("rank {}, earlier incarnation", rank->second) : "unknown";
}

bool is_message(const TraceEvent& event) { return event.kind == TraceKind::kSent || event.kind == TraceKind::kReceived; }

class Writer {
 public:
  Writer(const Taken& taken, base::Nanos origin)
      : taken_(taken), trace_(taken.rank, name_of(taken, taken.self), origin, taken.wall - (taken.now - origin)) {}

  void write(const TraceEvent& event) {
    if (is_message(event)) return message(event);
    const bool call = event.kind == TraceKind::kCall;
    const char* name = call ? table::kUseNames[event.what] : wire::EnumNameBody(static_cast<wire::Body>(event.what));
    const std::string arguments = call ? "" : fmt::format(R"("of": {})", base::json_quoted(name_of(taken_, event.peer)));
    trace_.span(call ? "call" : "gate", ++spans_, name, base::Nanos(event.begin), base::Nanos(event.end), arguments);
  }
  std::string take() { return trace_.take(); }

 private:
  void message(const TraceEvent& event) {
    const bool sent = event.kind == TraceKind::kSent;
    const auto rank = taken_.ranks.find(event.peer);
    // A peer that never was a member has the track after those of all ranks.
    const uint64_t track = track_of(rank != taken_.ranks.end() ? rank->second : taken_.view.members.size(), sent);
    if (named_.insert(track).second) trace_.track(track, fmt::format("{} {}", sent ? "to" : "from", name_of(taken_, event.peer)));
    const base::Nanos begin = (*taken_.scale)(event.begin), end = (*taken_.scale)(event.end);
    const std::string arguments = fmt::format(R"("bytes": {}, "number": {})", event.bytes, event.seq);
    trace_.slice(track, wire::EnumNameBody(static_cast<wire::Body>(event.what)), begin, end, arguments);
    if (event.seq == 0) return;
    if (sent)
      trace_.leaves(track, flow_of(taken_.self, event.peer, event), begin);
    else
      trace_.arrives(track, flow_of(event.peer, taken_.self, event), begin);
  }

  const Taken& taken_;
  telemetry::ChromeTrace trace_;
  std::set<uint64_t> named_;
  uint64_t spans_ = 0;
};

base::Nanos begin_of(const Taken& taken, const TraceEvent& event) {
  return is_message(event) ? (*taken.scale)(event.begin) : base::Nanos(event.begin);
}

}  // namespace

base::Result<std::string> Runtime::trace_text() {
  if (!trace_.on()) return base::Status(MV_ESTATE, "this process keeps no events: set trace_events (POLYVERSO_TRACE_EVENTS), or metrics, when the node is started");
  Taken taken;
  read_on_loop([&] {
    learn_ranks();
    taken.events = trace_.copy();
    taken.view = member_->cluster().view();
    taken.ranks = ranks_;
    taken.self = member_->self();
    taken.rank = identity_.rank;
    taken.scale = trace_.clock().scale();
    taken.now = loop_.now();
    taken.wall = since_1970();
  });
  if (!taken.scale) return ended();
  base::Nanos origin = taken.now;
  for (const TraceEvent& event : taken.events) origin = std::min(origin, begin_of(taken, event));
  Writer writer(taken, origin);
  for (const TraceEvent& event : taken.events) writer.write(event);
  return writer.take();
}

}  // namespace mv::runtime
