#include "engine/status/inquirer.hpp"

#include <algorithm>
#include <cmath>

#include "base/log.hpp"

namespace mv::status {

using namespace std::chrono_literals;

namespace {
/// Deadline for the answers of members, and interval of repeated requests.
constexpr base::Nanos kPatience = 1s, kAgain = 250ms;
/// Deadline for the master, which waits for its members first.
constexpr base::Nanos kMastersPatience = 2 * kPatience;
constexpr base::Nanos kLook = 1s, kLeastLook = 50ms;
constexpr size_t kSamples = 6;
/// Observers get a cached result up to this age.
constexpr base::Nanos kFresh = 100ms;
/// A stall that recurs after this time without one counts as new, and is logged again.
constexpr base::Nanos kOneWay = 5s;
constexpr size_t kMostStuck = 64;
constexpr ptrdiff_t kMostQuestions = 8;  ///< unanswered requests of one peer

/// The silence of the master beyond which it counts as not answering: more than beat intervals and a busy machine
/// cause.
base::Nanos patience_with_master(const cluster::Self& self) { return self.heartbeat_timeout / 5 + 1s; }

double rate(uint64_t before, uint64_t now, base::Nanos span) {
  return now > before && span.count() > 0
             ? static_cast<double>(now - before) / std::chrono::duration<double>(span).count()
             : 0;
}
}  // namespace

void Inquirer::start() {
  started_ = clock_.now();
  next_look_ = started_;
}

// ---- asking

bool Inquirer::master_answers() const {
  if (cluster_.is_master()) return false;
  const auto silence = cluster_.contacts().silence(cluster_.master());
  return silence.has_value() && *silence <= patience_with_master(cluster_.self());
}

void Inquirer::ask(bool json, Told told) {
  if (!master_answers()) return gather({json, std::move(told)});
  const base::Nanos now = clock_.now();
  const uint64_t number = ++numbers_;
  relays_.emplace(number, Relay{{json, std::move(told)}, now + kAgain, now + kMastersPatience});
  send_inquire(cluster_.master(), number, true, json);
}

/// The master has not answered: collects the reports here.
void Inquirer::relay_over(uint64_t number) {
  const auto relay = relays_.find(number);
  if (relay == relays_.end()) return;
  Asker asker = std::move(relay->second.asker);
  relays_.erase(relay);
  gather(std::move(asker));
}

void Inquirer::gather(Asker asker) {
  if (!gathering_) {
    const base::Nanos now = clock_.now();
    gathering_.emplace(Gathering{});  // clang 14 does not accept it as default-constructible
    gathering_->number = ++numbers_;
    gathering_->again = now + kAgain;
    gathering_->until = now + kPatience;
    for (const cluster::Member& member : cluster_.view().members)
      if (member.peer != cluster_.self().peer && member.state != cluster::State::kLost && cluster_.contacts().silence(member.peer))
        gathering_->awaited.insert(member.peer);
    for (const base::Peer peer : gathering_->awaited) send_inquire(peer, gathering_->number, false, false);
  }
  gathering_->askers.push_back(std::move(asker));
  if (gathering_->awaited.empty()) end_gathering();
}

void Inquirer::end_gathering() {
  Gathering over = std::move(*gathering_);
  gathering_.reset();  // first, because the callbacks may ask again
  over.reports[cluster_.self().peer] = report();
  last_ = Picture{clock_.now(), overview(std::move(over.reports)), "", ""};
  for (const Asker& asker : over.askers) asker.told(std::string(last_->as(asker.json)));
}

const std::string& Inquirer::Picture::as(bool as_json) {
  std::string& rendered = as_json ? json : text;
  if (rendered.empty()) rendered = as_json ? to_json(overview) : to_text(overview);
  return rendered;
}

Overview Inquirer::overview(std::map<base::Peer, Report> reports) const {
  Overview overview{cluster_.view(), cluster_.self().peer, cluster_.missing_joiners(), std::move(reports), {}};
  for (const cluster::Member& member : overview.view.members)
    if (const auto silence = cluster_.contacts().silence(member.peer)) overview.silence.emplace(member.peer, *silence);
  return overview;
}

void Inquirer::send_inquire(base::Peer to, uint64_t number, bool whole, bool json) {
  link_.send(to, builder_.finish(wire::Body::Inquire, wire::CreateInquire(builder_.fbb(), number, whole, json)));
}

// ---- answering

void Inquirer::on_message(base::Peer from, const wire::Message& message, std::span<const std::byte> payload) {
  if (const auto* inquire = message.body_as_Inquire()) {
    if (inquire->whole()) return answer_whole(from, inquire->number(), inquire->json());
    const auto written = write_report(builder_.fbb(), inquire->number(), report());
    link_.send(from, builder_.finish(wire::Body::Report, written));
  } else if (const auto* report = message.body_as_Report()) {
    if (!gathering_ || report->number() != gathering_->number || gathering_->awaited.erase(from) == 0) return;
    gathering_->reports[from] = read_report(*report);
    if (gathering_->awaited.empty()) end_gathering();
  } else if (const auto* told = message.body_as_Overview()) {
    const auto relay = relays_.find(told->number());
    if (relay == relays_.end() || from != cluster_.master()) return;
    const Told answered = std::move(relay->second.asker.told);
    relays_.erase(relay);
    answered({reinterpret_cast<const char*>(payload.data()), payload.size()});
  } else if (const auto* stuck = message.body_as_Stuck();
             stuck != nullptr && stuck->what() != nullptr && cluster_.view().find(from) != nullptr) {
    std::set<std::string> what;
    for (const flatbuffers::String* each : *stuck->what())
      if (what.size() < kMostStuck) what.insert(each->str());
    note_stuck(what);
  }
}

base::SinkRef Inquirer::place(base::Peer from, const wire::Message& message, size_t bytes) {
  const auto* told = message.body_as_Overview();
  if (told == nullptr || from != cluster_.master() || !relays_.contains(told->number())) return base::Sink::nowhere();
  const std::shared_ptr<std::byte[]> memory(new std::byte[bytes]);
  return base::Sink::into({memory.get(), bytes}, memory);
}

void Inquirer::answer_whole(base::Peer to, uint64_t number, bool json) {
  const ptrdiff_t open =
      std::count_if(answering_.begin(), answering_.end(), [&](const auto& entry) { return entry.first == to; });
  if (open >= kMostQuestions || !answering_.emplace(to, number).second) return;
  gather({json, [this, to, number](const std::string& text) {
            answering_.erase({to, number});
            send_overview(to, number, text);
          }});
}

void Inquirer::send_overview(base::Peer to, uint64_t number, const std::string& text) {
  const auto payload = base::Payload::copy(std::as_bytes(std::span(text)));
  link_.send(to, builder_.finish(wire::Body::Overview, wire::CreateOverview(builder_.fbb(), number), payload));
}

void Inquirer::on_observer_message(base::Peer from, const wire::Message& message) {
  const auto* inquire = message.body_as_Inquire();
  if (last_ && clock_.now() - last_->at < kFresh)
    return send_overview(from, inquire->number(), last_->as(inquire->json()));
  answer_whole(from, inquire->number(), inquire->json());
}

void Inquirer::on_lost(base::Peer peer) {
  if (gathering_ && gathering_->awaited.erase(peer) > 0 && gathering_->awaited.empty()) end_gathering();
  std::erase_if(answering_, [&](const auto& entry) { return entry.first == peer; });
  if (peer != cluster_.master()) return;
  for (auto& [number, relay] : relays_) relay.until = clock_.now();
}

// ---- the report of this node

std::vector<cluster::Wait> Inquirer::waits() const {
  std::vector<cluster::Wait> waits = server_.waits();
  for (auto& more : {cluster_.waits(), coordinator_.waits(), commands_.waits()}) waits.insert(waits.end(), more.begin(), more.end());
  return waits;
}

std::vector<PeerState> Inquirer::peers() const {
  std::vector<PeerState> peers;
  if (!paths_) return peers;
  const base::Nanos now = clock_.now();
  for (const cluster::Member& member : cluster_.view().members) {
    const auto silence = cluster_.contacts().silence(member.peer);
    if (!silence) continue;
    PeerState state{member.peer, paths_(member.peer), 0, 0, *silence};
    const auto oldest = std::find_if(samples_.begin(), samples_.end(),
                                     [&](const Sample& sample) { return sample.paths.contains(member.peer); });
    if (oldest != samples_.end()) {
      const Path& before = oldest->paths.at(member.peer);
      state.send_rate = rate(before.sent, state.path.sent, now - oldest->at);
      state.receive_rate = rate(before.received, state.path.received, now - oldest->at);
    }
    peers.push_back(std::move(state));
  }
  return peers;
}

Report Inquirer::report() const {
  Report report;
  report.phase = cluster_.phase();
  report.uptime = clock_.now() - started_;
  report.metrics = metrics_;
  report.in_flight = client_.in_flight();
  report.peers = peers();
  report.reported = reported_.latest(clock_.now());
  report.held = server_.states();
  report.waits = waits();
  const base::Peer self = cluster_.self().peer;
  if (const int64_t worker = cluster_.view().worker_id(self); worker >= 0) {
    report.own = client_.states(static_cast<uint32_t>(worker));
    report.groups = groups_.reports();
    const auto calls = own_waits();
    report.waits.insert(report.waits.end(), calls.begin(), calls.end());
  }
  return report;
}

/// The calls of this node's program, as far as it knows by itself what they wait for.
std::vector<cluster::Wait> Inquirer::own_waits() const {
  auto waits = client_.waits(cluster_.self().peer);
  const auto operations = groups_.waits();
  waits.insert(waits.end(), operations.begin(), operations.end());
  return waits;
}

std::string Inquirer::own_wait() const {
  const auto waits = own_waits();
  const auto oldest = std::ranges::max_element(waits, {}, &cluster::Wait::age);
  return oldest != waits.end() ? cluster::describe(*oldest) : "";
}

// ---- detection of stalls

std::set<std::string> Inquirer::stuck() const {
  using cluster::WaitKind;
  std::set<std::string> what;
  for (const cluster::Wait& wait : waits()) {
    if (wait.kind == WaitKind::kCheckpoint || !cluster::has_waited(wait, cluster_.self().stuck_after)) continue;
    if (what.size() >= kMostStuck) break;
    what.insert(wait.kind == WaitKind::kBarrier   ? "a barrier"
                : wait.kind == WaitKind::kCommand ? "a command"
                                                  : fmt::format("table \"{}\"", wait.table));
  }
  return what;
}

void Inquirer::note_stuck(const std::set<std::string>& what) {
  const base::Nanos now = clock_.now();
  std::string fresh;
  for (const std::string& each : what) {
    if (stuck_told_.size() >= kMostStuck && !stuck_told_.contains(each)) continue;
    if (stuck_told_.insert_or_assign(each, now).second) fresh += (fresh.empty() ? "" : ", ") + each;
  }
  if (fresh.empty()) return;
  const double limit = std::chrono::duration<double>(cluster_.self().stuck_after).count();
  gather({false, [fresh, limit](const std::string& text) {
            base::log_warn("{}: no progress for {:g} s\n{}", fresh, limit, text);
          }});
}

void Inquirer::tell_master(const std::set<std::string>& what) {
  auto& fbb = builder_.fbb();
  std::vector<flatbuffers::Offset<flatbuffers::String>> words;
  for (const std::string& each : what) words.push_back(fbb.CreateString(each));
  const auto list = fbb.CreateVector(words);
  link_.send(cluster_.master(), builder_.finish(wire::Body::Stuck, wire::CreateStuck(fbb, list)));
}

void Inquirer::look() {
  const base::Nanos now = clock_.now();
  next_look_ = now + std::clamp(cluster_.self().stuck_after / 2, kLeastLook, kLook);
  cluster_.contacts().note_silence();
  if (paths_) {
    Sample sample{now, {}};
    for (const cluster::Member& member : cluster_.view().members)
      if (cluster_.contacts().silence(member.peer)) sample.paths.emplace(member.peer, paths_(member.peer));
    samples_.push_back(std::move(sample));
    if (samples_.size() > kSamples) samples_.pop_front();
  }
  std::erase_if(stuck_told_, [&](const auto& entry) { return now - entry.second > kOneWay; });
  const auto what = stuck();
  if (!what.empty()) master_answers() ? tell_master(what) : note_stuck(what);
}

// ---- time

base::Nanos Inquirer::next_deadline() const {
  base::Nanos next = next_look_;
  if (gathering_) next = std::min({next, gathering_->again, gathering_->until});
  for (const auto& [number, relay] : relays_) next = std::min({next, relay.again, relay.until});
  return next;
}

void Inquirer::tick() {
  const base::Nanos now = clock_.now();
  if (gathering_ && now >= gathering_->until) {
    end_gathering();
  } else if (gathering_ && now >= gathering_->again) {
    gathering_->again = now + kAgain;
    for (const base::Peer peer : gathering_->awaited) send_inquire(peer, gathering_->number, false, false);
  }
  std::vector<uint64_t> over;
  for (auto& [number, relay] : relays_) {
    if (now >= relay.until) over.push_back(number);
    if (now < relay.again) continue;
    relay.again = now + kAgain;
    send_inquire(cluster_.master(), number, true, relay.asker.json);
  }
  for (const uint64_t number : over) relay_over(number);
  if (now >= next_look_) look();
}

}  // namespace mv::status
