#include "stranger.hpp"

namespace mv::sim {

using namespace std::chrono_literals;
using wire::Body;

namespace {
constexpr int kLives = 4;
}

Stranger::Stranger(Timeline& timeline, Network& network, Random random, size_t nodes)
    : timeline_(timeline), network_(network), random_(random), nodes_(nodes) {}

void Stranger::start() {
  if (++lives_ > kLives) return;
  talking_to_.clear();
  seq_ = 0;
  self_ = random_.next() | 1;
  network_.add(self_, fmt::format("stranger {}", lives_), fmt::format("sim:stranger.{}", lives_), *this, [] {});
  for (size_t node = 0; node < nodes_; ++node) network_.dial(self_, fmt::format("sim:{}", node));
  timeline_.after(Nanos(random_.between(100'000'000, 8'000'000'000)), [this] {
    network_.remove(self_, random_.chance(0.5), true);
    start();
  });
}

void Stranger::on_connected(Peer peer, const std::string&) {
  if (talking_to_.insert(peer).second) speak(peer);
}

void Stranger::on_lost(Peer peer, const base::Status&) { talking_to_.erase(peer); }

void Stranger::speak(Peer to) {
  for (uint64_t more = 1 + random_.below(4); more > 0; --more) {
    base::Frame frame = any_message();
    const uint64_t seq = random_.chance(0.6) ? ++seq_ : random_.chance(0.5) ? 0 : random_.below(10);
    const auto written = wire::read_header(std::span<const std::byte>(frame.head).subspan(wire::kPrefixBytes));
    if (written.ok() && written.value()->body_type() == Body::Join) joins_.insert(seq);
    wire::stamp(frame, seq, random_.chance(0.9) ? 0 : random_.next());
    network_.send(self_, to, frame);
  }
  timeline_.after(Nanos(random_.between(10'000, 300'000'000)), [this, to, life = lives_] {
    if (life == lives_ && talking_to_.contains(to)) speak(to);
  });
}

base::PayloadRef Stranger::any_payload() {
  if (random_.chance(0.4)) return nullptr;
  std::vector<std::byte> bytes(random_.chance(0.8) ? 4 * random_.below(200) : 4 * random_.below(30'000), std::byte{0x42});
  return bytes.empty() ? nullptr : base::Payload::copy(std::move(bytes));
}

/// Half of the time a harmful message; otherwise an empty message of any kind.
base::Frame Stranger::any_message() {
  auto& fbb = builder_.fbb();
  const auto table = static_cast<uint32_t>(random_.below(4));
  const uint64_t count = random_.below(50);
  switch (random_.below(18)) {
    case 0:
      return builder_.finish(Body::Change, wire::CreateChange(fbb, table, wire::Write::Set, 0, count), any_payload());
    case 1:
      return builder_.finish(Body::Change, wire::CreateChange(fbb, table, wire::Write::Add, count, count, 0, 0, random_.below(3), 1, 0, 0, 0, static_cast<uint32_t>(random_.below(4))), any_payload());
    case 2:
      return builder_.finish(Body::Destroy, wire::CreateDestroy(fbb, table));
    case 3:
      return builder_.finish(Body::Get, wire::CreateGet(fbb, table, 0, count));
    case 4:
      return builder_.finish(Body::Clock, wire::CreateClock(fbb, table, random_.next()));
    case 5:
      return builder_.finish(Body::Got, wire::CreateGot(fbb, table, count));
    case 6:
      return builder_.finish(Body::Join, wire::CreateJoinDirect(fbb, 9999, -1, MV_ROLE_WORKER, wire::Mode::Unsaid, "sim:0", "sim", 1));
    case 7:
      return builder_.finish(Body::Cancel, wire::CreateCancel(fbb, random_.below(5)));
    case 8:
      return builder_.finish(Body::Ping, wire::CreatePing(fbb, random_.chance(0.5) ? count : random_.next(), random_.next(), random_.below(3)));
    case 9:
      return builder_.finish(Body::Inquire, wire::CreateInquire(fbb, random_.below(9), random_.chance(0.5), random_.chance(0.5)));
    default:
      break;
  }
  const auto& all = wire::EnumValuesBody();
  const auto start = fbb.StartTable();
  const flatbuffers::Offset<void> body(fbb.EndTable(start));
  return builder_.finish(all[1 + random_.below(std::size(all) - 1)], body, any_payload());
}

void Stranger::on_message(Peer from, const wire::Message& message, std::span<const std::byte> payload) {
  switch (message.body_type()) {
    case Body::Ping:
    case Body::Progress:  // "I wait for your first request"
    case Body::Ack:
    case Body::Inquire:
    case Body::Overview:  // the cluster's status
      return;
    case Body::Reply:
      // A Join that comes again after its answer was acknowledged is confirmed.
      if (message.status() != MV_OK || joins_.contains(message.seq())) return;
      break;
    case Body::View:  // who the master is
      if (const auto* view = message.body_as_View(); payload.empty() && (view->members() == nullptr || view->members()->size() <= 1)) return;
      break;
    default:
      break;
  }
  timeline_.violated(fmt::format("{} served a stranger with {}", network_.name(from), wire::EnumNameBody(message.body_type())));
}

}  // namespace mv::sim
