#include "engine/replica/successor.hpp"

#include <utility>

namespace mv::replica {

/// Receives the successor's acknowledgements, one for each input in their order.
class Successor::Acknowledged final : public rpc::Pending {
 public:
  explicit Acknowledged(Successor& of) : of_(&of) {}
  /// The successor does not count any more.
  void ignore() { of_ = nullptr; }
  void finish(const base::Status& status, const wire::Message*, std::span<const std::byte>) override {
    // After a failure, the master decides which of the two survives.
    if (of_ != nullptr) status.ok() ? of_->one_acknowledged() : of_->refused();
  }

 private:
  Successor* of_;
};

Successor::~Successor() {
  if (answers_ != nullptr) answers_->ignore();
}

void Successor::set(base::Peer to) {
  if (answers_ != nullptr) answers_->ignore();
  answers_ = to != base::kNobody ? std::make_shared<Acknowledged>(*this) : nullptr;
  peer_ = to;
  has_refused_ = false;
}

void Successor::begin(base::Peer to) { set(to); }

void Successor::call(base::Frame frame, bool is_forwarded) {
  const size_t cost = frame.bytes();
  peers_.call(peer_, {std::move(frame), answers_, false, cost, nullptr, is_forwarded});
}

void Successor::pass_later(base::Frame frame) {
  unacknowledged_.push_back({std::move(frame), {}, false});
  ++waiting_;
}

void Successor::send_waiting() {
  for (size_t left = std::exchange(waiting_, 0); left > 0; --left) {
    const Passed& passed = unacknowledged_[unacknowledged_.size() - left];
    call(passed.frame, passed.is_forwarded);
  }
}

void Successor::add(Passed passed) {
  send_waiting();
  base::Frame frame = keeps_frames_ ? passed.frame : std::move(passed.frame);
  const bool is_forwarded = passed.is_forwarded;
  unacknowledged_.push_back(std::move(passed));
  call(std::move(frame), is_forwarded);
}

void Successor::replace(base::Peer to) {
  set(to);
  waiting_ = 0;
  for (const Passed& passed : unacknowledged_) call(passed.frame, passed.is_forwarded);
}

void Successor::end() {
  set(base::kNobody);
  waiting_ = 0;
  while (!unacknowledged_.empty()) one_acknowledged();
}

void Successor::one_acknowledged() {
  const auto done = std::move(unacknowledged_.front().done);
  unacknowledged_.pop_front();
  acknowledged_();
  if (done) done();
}

}  // namespace mv::replica
