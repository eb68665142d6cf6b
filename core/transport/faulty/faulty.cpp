#include "transport/faulty/faulty.hpp"

#include <algorithm>

namespace mv::transport {

FaultyTransport::FaultyTransport(Loop& loop, std::unique_ptr<Transport> transport, const Faults& faults)
    : loop_(loop), transport_(std::move(transport)), faults_(faults), dice_(faults.seed), timer_(loop, [this] { send_due(); }) {}

/// splitmix64: the same numbers on every machine.
uint64_t FaultyTransport::roll() {
  uint64_t z = (dice_ += 0x9e37'79b9'7f4a'7c15);
  z = (z ^ (z >> 30)) * 0xbf58'476d'1ce4'e5b9;
  z = (z ^ (z >> 27)) * 0x94d0'49bb'1331'11eb;
  return z ^ (z >> 31);
}

bool FaultyTransport::happens(double probability) { return static_cast<double>(roll() >> 11) * 0x1p-53 < probability; }

void FaultyTransport::send(base::Peer to, const base::Frame& frame) {
  // Always the same number of random numbers per message, so that the setting of one fault does not change the others.
  const bool cut = happens(faults_.cut), drop = happens(faults_.drop), twice = happens(faults_.duplicate);
  if (cut) transport_->cut(to);
  if (!drop) pass_on(to, frame);
  if (!drop && twice) pass_on(to, frame);
}

/// The time until the line has sent this message, after all earlier ones.
base::Nanos FaultyTransport::time_on_line(const base::Frame& frame) {
  if (faults_.rate <= 0) return {};
  const size_t bytes = frame.head.size() + (frame.tail != nullptr ? frame.tail->size() : 0);
  const std::chrono::duration<double> takes(static_cast<double>(bytes) / faults_.rate);
  line_free_ = std::max(line_free_, loop_.now()) + std::chrono::duration_cast<base::Nanos>(takes);
  return line_free_ - loop_.now();
}

void FaultyTransport::pass_on(base::Peer to, const base::Frame& frame) {
  if (faults_.delay == base::Nanos{0} && faults_.rate <= 0) return transport_->send(to, frame);
  const base::Nanos later(static_cast<int64_t>(roll() % static_cast<uint64_t>(faults_.delay.count() + 1)));
  const base::Nanos wait = time_on_line(frame) + later;
  const auto placed = delayed_.emplace(loop_.now() + wait, std::pair(to, frame));
  if (placed == delayed_.begin()) timer_.start(wait);
}

void FaultyTransport::send_due() {
  const base::Nanos now = loop_.now();
  while (!delayed_.empty() && delayed_.begin()->first <= now) {
    const auto [to, frame] = std::move(delayed_.begin()->second);
    delayed_.erase(delayed_.begin());
    transport_->send(to, frame);
  }
  if (!delayed_.empty()) timer_.start(delayed_.begin()->first - now);
}

void FaultyTransport::close(base::Peer peer) {
  std::erase_if(delayed_, [peer](const auto& item) { return item.second.first == peer; });
  transport_->close(peer);
}

void FaultyTransport::stop(std::function<void()> stopped) {
  delayed_.clear();
  timer_.stop();
  transport_->stop(std::move(stopped));
}

}  // namespace mv::transport
