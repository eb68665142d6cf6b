#include "engine/status/inquirer.hpp"

#include <algorithm>
#include <cmath>

#include "base/log.hpp"

namespace mv::status {

using namespace std::chrono_literals;

namespace {
/// Deadline for the answers of members, and interval of repeated requests.
constexpr base::Nanos kPatience = 1s, kAgain = 250ms;
/// A display is updated again soon, so it shows members without an answer early.
constexpr base::Nanos kLivePatience = 500ms;
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

/// The silence of a member that the master logs. Longer than beat intervals and a busy machine cause, and by default before the member is lost.
base::Nanos worth_a_warning(const cluster::Self& self) { return std::max<base::Nanos>(3s, 2 * self.heartbeat_timeout / 5 + 1s); }

double rate(uint64_t before, uint64_t now, base::Nanos span) {
  return now > before && span.count() > 0 ? static_cast<double>(now - before) / base::seconds(span) : 0;
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

void Inquirer::ask(const Form& form, Told told) {
  if (!master_answers()) return gather({form, std::move(told)});
  const base::Nanos now = clock_.now();
  const uint64_t number = ++numbers_;
  relays_.emplace(number, Relay{{form, std::move(told)}, now + kAgain, now + kMastersPatience});
  send_inquire(cluster_.master(), number, true, form);
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
  const bool live = asker.form.live;
  std::optional<Gathering>& gathering = this->gathering(live);
  if (!gathering) {
    const base::Nanos now = clock_.now();
    gathering.emplace(Gathering{});  // clang 14 does not accept it as default-constructible
    gathering->number = ++numbers_;
    gathering->live = live;
    gathering->again = now + kAgain;
    gathering->until = now + (live ? kLivePatience : kPatience);
    for (const cluster::Member& member : cluster_.view().members)
      if (member.peer != cluster_.self().peer && member.state != cluster::MemberState::kLost && cluster_.contacts().silence(member.peer))
        gathering->awaited.insert(member.peer);
    for (const base::Peer peer : gathering->awaited) send_inquire(peer, gathering->number, false, {false, live});
  }
  gathering->askers.push_back(std::move(asker));
  if (gathering->awaited.empty()) end_gathering(live);
}

void Inquirer::end_gathering(bool live) {
  Gathering over = std::move(*gathering(live));
  gathering(live).reset();  // first, because the callbacks may ask again
  over.reports[cluster_.self().peer] = report(live);
  std::optional<Picture>& picture = last(live);
  picture = Picture{clock_.now(), overview(std::move(over.reports), live), "", ""};
  for (const Asker& asker : over.askers) asker.told(std::string(picture->as(asker.form.json)));
}

const std::string& Inquirer::Picture::as(bool as_json) {
  std::string& rendered = as_json ? json : text;
  if (rendered.empty()) rendered = as_json ? to_json(overview) : to_text(overview);
  return rendered;
}

Overview Inquirer::overview(std::map<base::Peer, Report> reports, bool live) const {
  Overview overview{cluster_.view(), cluster_.self().peer, cluster_.missing_joiners(), std::move(reports), {}, live, cluster_.self().replicas};
  for (const cluster::NewsItem& item : cluster_.news().items()) overview.news.push_back({item.event, clock_.now() - item.at});
  for (const cluster::Member& member : overview.view.members)
    if (const auto silence = cluster_.contacts().silence(member.peer)) overview.silence.emplace(member.peer, *silence);
  return overview;
}

void Inquirer::send_inquire(base::Peer to, uint64_t number, bool whole, const Form& form) {
  link_.send(to, builder_.finish(wire::Body::Inquire, wire::CreateInquire(builder_.fbb(), number, whole, form.json, form.live)));
}

// ---- answering

void Inquirer::on_message(base::Peer from, const wire::Message& message, std::span<const std::byte> payload) {
  if (const auto* inquire = message.body_as_Inquire()) {
    if (inquire->whole()) return answer_whole(from, inquire->number(), {inquire->json(), inquire->live()});
    auto& fbb = builder_.fbb();
    const auto written = inquire->log() ? write_log(fbb, inquire->number(), base::log_tail())
                                        : write_report(fbb, inquire->number(), report(inquire->live()));
    link_.send(from, builder_.finish(wire::Body::Report, written));
  } else if (const auto* report = message.body_as_Report()) {
    on_report(from, *report);
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

void Inquirer::on_report(base::Peer from, const wire::Report& report) {
  if (logs_.take(from, report)) return;
  for (std::optional<Gathering>& gathering : gatherings_) {
    if (!gathering || report.number() != gathering->number || gathering->awaited.erase(from) == 0) continue;
    gathering->reports[from] = read_report(report);
    if (gathering->awaited.empty()) end_gathering(gathering->live);
    return;
  }
}

/// False if the question is being answered already, or is one too many.
bool Inquirer::takes_question(base::Peer from, uint64_t number) {
  const ptrdiff_t open =
      std::count_if(answering_.begin(), answering_.end(), [&](const auto& entry) { return entry.first == from; });
  return open < kMostQuestions && answering_.emplace(from, number).second;
}

void Inquirer::answer_log(base::Peer to, uint64_t number, uint32_t rank, bool json) {
  if (!takes_question(to, number)) return;
  const auto& members = cluster_.view().members;
  const auto member = std::ranges::find(members, rank, &cluster::Member::rank);
  const LogQuestions::Answer answer = [this, to, number, rank, json](const base::Result<base::LogTail>& told) {
    if (answering_.erase({to, number}) == 0) return;
    if (!told.ok()) return send_overview(to, number, told.status().text(), told.status().code());
    send_overview(to, number, json ? log_json(rank, told.value()) : log_text(told.value()));
  };
  if (member == members.end()) return answer(base::error(MV_ENOTFOUND, "there is no process of rank {}", rank));
  if (member->peer == cluster_.self().peer) return answer(base::log_tail());
  if (cluster_.contacts().silence(member->peer)) return logs_.ask(member->peer, rank, ++numbers_, answer);
  answer(base::error(MV_EPEERLOST, "there is no connection to the process of rank {}", rank));
}

void Inquirer::answer_resize(base::Peer to, uint64_t number, uint32_t servers) {
  if (!takes_question(to, number)) return;
  cluster_.resize(servers, std::make_shared<rpc::Told>([this, to, number](const base::Status& status) {
                    if (answering_.erase({to, number}) > 0) send_overview(to, number, status.text(), status.code());
                  }));
}

void Inquirer::answer_whole(base::Peer to, uint64_t number, const Form& form) {
  if (!takes_question(to, number)) return;
  gather({form, [this, to, number](const std::string& text) {
            answering_.erase({to, number});
            send_overview(to, number, text);
          }});
}

void Inquirer::send_overview(base::Peer to, uint64_t number, const std::string& text, mv_status status) {
  const auto payload = base::Payload::copy(std::as_bytes(std::span(text)));
  link_.send(to, builder_.finish(wire::Body::Overview, wire::CreateOverview(builder_.fbb(), number, status), payload));
}

void Inquirer::on_observer_message(base::Peer from, const wire::Message& message) {
  const auto* inquire = message.body_as_Inquire();
  if (inquire->servers() > 0) return answer_resize(from, inquire->number(), inquire->servers());
  if (inquire->log()) return answer_log(from, inquire->number(), inquire->rank(), inquire->json());
  std::optional<Picture>& picture = last(inquire->live());
  if (picture && clock_.now() - picture->at < kFresh)
    return send_overview(from, inquire->number(), picture->as(inquire->json()));
  answer_whole(from, inquire->number(), {inquire->json(), inquire->live()});
}

void Inquirer::on_lost(base::Peer peer) {
  for (std::optional<Gathering>& gathering : gatherings_)
    if (gathering && gathering->awaited.erase(peer) > 0 && gathering->awaited.empty()) end_gathering(gathering->live);
  std::erase_if(answering_, [&](const auto& entry) { return entry.first == peer; });
  if (peer != cluster_.master()) return;
  for (auto& [number, relay] : relays_) relay.until = clock_.now();
}

// ---- the report of this node

std::vector<cluster::Wait> Inquirer::waits() const {
  std::vector<cluster::Wait> waits;
  for (const table::Server* tables : parts_.served()) {
    const auto held = tables->waits();
    waits.insert(waits.end(), held.begin(), held.end());
  }
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

Report Inquirer::report(bool live) const {
  Report report;
  report.phase = cluster_.phase();
  report.uptime = clock_.now() - started_;
  report.metrics = metrics_;
  report.choice = choice_;
  if (keeper_) report.keeper = keeper_();
  report.in_flight = client_.in_flight();
  report.peers = peers();
  if (live && cluster_.view().members.size() > kMostMembersWithPairs) shorten_peers(report);
  report.reported = reported_.latest(clock_.now());
  report.held = held();
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

/// The tables served here. Of one that has two parts here, after a takeover, both together.
std::vector<table::TableState> Inquirer::held() const {
  std::map<std::string, table::TableState> by_name;
  for (const table::Server* tables : parts_.served())
    for (table::TableState& state : tables->states()) {
      const auto [known, is_new] = by_name.try_emplace(state.name, state);
      if (!is_new) merge(known->second, state);
    }
  std::vector<table::TableState> held;
  for (auto& [name, state] : by_name) held.push_back(std::move(state));
  return held;
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
  const double limit = base::seconds(cluster_.self().stuck_after);
  gather({{}, [fresh, limit](const std::string& text) {
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

/// The master logs each silence once. Without a metric or a status, nobody would learn of it before the member is lost.
void Inquirer::tell_of_silence() {
  if (!cluster_.is_master()) return;
  const base::Nanos now = clock_.now();
  for (const cluster::Member& member : cluster_.view().members) {
    const auto silence = cluster_.contacts().silence(member.peer);
    if (member.state != cluster::MemberState::kHere || !silence || *silence < worth_a_warning(cluster_.self())) continue;
    const std::string name = cluster_.view().name(member.peer);
    if (!stuck_told_.insert_or_assign("the silence of " + name, now).second) continue;
    base::log_warn("{} has been silent for {:.1f} s: it is stopped, its machine is overloaded, or the network is interrupted; "
                   "after {:g} s it is lost",
                   name, base::seconds(*silence), base::seconds(cluster_.self().heartbeat_timeout));
  }
}

void Inquirer::check_stalls() {
  const base::Nanos now = clock_.now();
  const bool ran = now - next_look_ < kLook;  // else this process itself was stopped, and has not read yet what came meanwhile
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
  if (ran) tell_of_silence();
  const auto what = stuck();
  if (!what.empty()) master_answers() ? tell_master(what) : note_stuck(what);
}

// ---- time

base::Nanos Inquirer::next_deadline() const {
  base::Nanos next = std::min(next_look_, logs_.next_deadline());
  for (const std::optional<Gathering>& gathering : gatherings_)
    if (gathering) next = std::min({next, gathering->again, gathering->until});
  for (const auto& [number, relay] : relays_) next = std::min({next, relay.again, relay.until});
  return next;
}

void Inquirer::tick() {
  const base::Nanos now = clock_.now();
  for (std::optional<Gathering>& gathering : gatherings_) {
    if (gathering && now >= gathering->until) {
      end_gathering(gathering->live);
    } else if (gathering && now >= gathering->again) {
      gathering->again = now + kAgain;
      for (const base::Peer peer : gathering->awaited) send_inquire(peer, gathering->number, false, {false, gathering->live});
    }
  }
  logs_.tick();
  std::vector<uint64_t> over;
  for (auto& [number, relay] : relays_) {
    if (now >= relay.until) over.push_back(number);
    if (now < relay.again) continue;
    relay.again = now + kAgain;
    send_inquire(cluster_.master(), number, true, relay.asker.form);
  }
  for (const uint64_t number : over) relay_over(number);
  if (now >= next_look_) check_stalls();
}

}  // namespace mv::status
