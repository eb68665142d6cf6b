#include "engine/replica/offer.hpp"

#include <algorithm>
#include <utility>

namespace mv::replica {

using namespace std::chrono_literals;

namespace {
constexpr base::Nanos kLookEvery = 1ms;      ///< for a calm moment
constexpr base::Nanos kWaitAtFirst = 20ms;   ///< before new work is kept away
constexpr base::Nanos kCalmAtFirst = 100ms;  ///< the time for which it is; twice as long with each attempt, because a round may take long
constexpr base::Nanos kCalmAtMost = 1600ms;
constexpr int kRest = 4;  ///< the time until the next attempt, in that time
constexpr base::Nanos kAskAgain = 100ms;
}  // namespace

class Offer::Answered final : public rpc::Pending {
 public:
  explicit Answered(std::weak_ptr<Offer> offer) : offer_(std::move(offer)) {}
  void finish(const base::Status& status, const wire::Message*, std::span<const std::byte>) override {
    if (const auto offer = offer_.lock()) offer->permitted(status);
  }

 private:
  const std::weak_ptr<Offer> offer_;  ///< it may be given up
};

Offer::~Offer() {
  if (is_calm_) part_.calm(false);
}

void Offer::ask(const Terms& terms, base::Peer self) {
  terms_ = terms;
  unasked_ = {terms.to};
  if (terms.sender != self) unasked_.push_back(terms.sender);
  send();
}

void Offer::send() {
  const auto question = wire::CreateReplicate(builder_.fbb(), terms_.number, wire::ReplicaEvent::Begin, terms_.sender, 0, 0, 0, 0, 0, 0, nullptr, nullptr, 0, 0,
                                              terms_.epoch, terms_.to);
  base::Frame frame = builder_.finish(wire::Body::Replicate, question);
  const size_t cost = frame.bytes();
  peers_.call(unasked_.front(), {std::move(frame), std::make_shared<Answered>(weak_from_this()), false, cost, nullptr});
}

void Offer::wait() {
  is_permitted_ = true;
  next_ = clock_.now();
  until_ = clock_.now() + kWaitAtFirst;
}

void Offer::permitted(const base::Status& status) {
  if (status.code() == MV_EPEERLOST && peers_.is_lost(unasked_.front())) return;  // the master will name another one
  if (!status.ok()) {
    next_ = clock_.now() + kAskAgain;
    return;
  }
  unasked_.pop_front();
  unasked_.empty() ? wait() : send();
}

bool Offer::tick() {
  const base::Nanos now = clock_.now();
  if (now < next_) return false;
  if (is_permitted_) return wait_for_calm(now);
  next_ = base::kNever;
  send();
  return false;
}

bool Offer::wait_for_calm(base::Nanos now) {
  next_ = now + kLookEvery;
  if (part_.is_idle() && start_()) {
    if (std::exchange(is_calm_, false)) part_.calm(false);
    return true;
  }
  if (now < until_) return false;
  is_calm_ = !is_calm_;
  if (is_calm_) calm_for_ = calm_for_ == base::Nanos(0) ? kCalmAtFirst : std::min(2 * calm_for_, kCalmAtMost);
  until_ = now + (is_calm_ ? calm_for_ : kRest * calm_for_);
  part_.calm(is_calm_);
  return false;
}

}  // namespace mv::replica
