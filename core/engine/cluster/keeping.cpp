#include "engine/cluster/keeping.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"

namespace mv::cluster {

using namespace std::chrono_literals;

namespace {
constexpr base::Nanos kReadAgain = 50ms;
}  // namespace

/// A view of an earlier cluster may be there. This process has the name, so that cluster has ended, or has lost the
/// keeper: it can't decide any more.
void Keeping::found(const View& view, Done done) {
  keeper_->read([this, view, done = std::move(done)](const base::Result<Keeper::Content>& content) {
    if (!content.ok()) return done(content.status());
    keeper_->write(content.value().revision, to_bytes(view), [this, done](const base::Result<uint64_t>& written) {
      if (!written.ok() && written.status().code() == MV_ESTATE)
        return done(base::error(MV_EDISAGREE, "another cluster of this name has begun: {}", written.status().text()));
      if (written.ok()) revision_ = written.value();
      done(written.status());
    });
  });
}

void Keeping::begin() {
  if (keeper_ != nullptr) return;
  QuorumKeeper::Events events;
  events.send = [this](base::Peer to, const QuorumKeeper::Vote& vote) { send_vote(to, vote); };
  events.hears_master = [this] { return roster_.is_master() || contacts_.is_connected(roster_.master()); };
  events.decided = events_.decided;
  quorum_ = std::make_unique<QuorumKeeper>(clock_, roster_.self().peer, roster_.self().heartbeat_timeout, std::move(events));
  quorum_->learn(roster_.decided());
  keeper_ = quorum_.get();
  revision_ = roster_.decided().epoch;
  if (roster_.is_master()) warn_of_few_voters();
}

void Keeping::warn_of_few_voters() const {
  const View& view = roster_.decided();
  const auto voters = std::ranges::count_if(view.members, [](const Member& member) { return member.votes; });
  if (voters < 3)
    base::log_warn("only {} processes decide about the members: if {} is lost, no process can take its place. With three servers, or two and a process that is only "
                   "a worker, its loss is survived", voters, view.name(roster_.master()));
}

/// Votes have whole views. They go to the voters only, and a voter that has missed a view can vote at once.
void Keeping::send_vote(base::Peer to, const QuorumKeeper::Vote& vote) {
  auto& fbb = builder_.fbb();
  const auto view = vote.view ? write_view(fbb, *vote.view) : flatbuffers::Offset<wire::View>();
  const auto base = vote.base ? write_view(fbb, *vote.base) : flatbuffers::Offset<wire::View>();
  link_.send(to, builder_.finish(wire::Body::Vote, wire::CreateVote(fbb, vote.word, vote.epoch, vote.ballot, vote.accepted, view, base)));
}

void Keeping::on_vote(base::Peer from, const wire::Vote& vote) {
  if (quorum_ == nullptr) return;
  QuorumKeeper::Vote read{vote.word(), vote.epoch(), vote.ballot(), vote.accepted(), std::nullopt, std::nullopt};
  if (vote.view() != nullptr) read.view = read_view(*vote.view());
  if (vote.base() != nullptr) read.base = read_view(*vote.base());
  quorum_->on_vote(from, read);
}

void Keeping::write(const View& next, Done done) {
  is_busy_ = true;
  keeper_->write(revision_, to_bytes(next), [this, done = std::move(done)](const base::Result<uint64_t>& written) {
    is_busy_ = false;
    if (standing_.is_cut_off()) return;
    trouble_ = written.status();
    if (written.ok()) revision_ = written.value();
    else read_again();  // another process has written, or nobody knows whether this one has
    done(written.status());
  });
}

void Keeping::read() {
  read_at_ = base::kNever;
  if (is_busy_ || standing_.is_cut_off()) return;
  is_busy_ = true;
  keeper_->read([this](const base::Result<Keeper::Content>& content) {
    is_busy_ = false;
    if (standing_.is_cut_off()) return;
    trouble_ = content.status();
    content.ok() ? take(content.value()) : read_again();
  });
}

void Keeping::take(const Keeper::Content& content) {
  const auto view = from_bytes(content.view);
  if (!view.ok()) return events_.cut_off(base::error(MV_EPROTOCOL, "the keeper of the list of members has an invalid one: {}", view.status().text()));
  if (view.value().find(roster_.self().peer) == nullptr && (quorum_ == nullptr || view.value().epoch > roster_.decided().epoch))
    return events_.cut_off(base::error(MV_EPEERLOST, "this process is no longer a member: the others have declared it lost, or another cluster of this name has started"));
  revision_ = content.revision;
  const bool is_new = view.value().epoch > roster_.decided().epoch;
  if (is_new) events_.decided(view.value());
  events_.read(is_new);
}

void Keeping::read_again() { read_at_ = clock_.now() + kReadAgain; }

void Keeping::learn(const View& view) {
  if (quorum_ != nullptr) quorum_->learn(view);
}

void Keeping::tell_servers() {
  if (quorum_ == nullptr) return;
  const View& decided = roster_.decided();
  for (const Member& member : roster_.view().members)
    if (member.is_server() && member.peer != roster_.self().peer && contacts_.is_connected(member.peer))
      send_vote(member.peer, {wire::VoteWord::Decided, decided.epoch, 0, 0, decided, std::nullopt});
}

bool Keeping::is_quorum(const std::set<base::Peer>& voters) const { return quorum_ == nullptr || QuorumKeeper::is_quorum(roster_.decided(), voters); }

void Keeping::tick_quorum() {
  if (quorum_ != nullptr) quorum_->tick();
}

}  // namespace mv::cluster
