#include "engine/replica/outbox.hpp"

namespace mv::replica {

void Outbox::send(base::Peer to, const base::Frame& frame) {
  if (!is_open_) return;
  send_held();
  if (held_.empty() && is_held(inputs_) && !is_sealed_ && !is_gathering_) return link_.send(to, frame);
  held_.push_back({is_gathering_ ? kNotKnown : inputs_, to, frame});
}

void Outbox::input_acknowledged() {
  if (acknowledged_ < inputs_) ++acknowledged_;
  send_held();
}

void Outbox::release() {
  acknowledged_ = inputs_;
  send_held();
}

void Outbox::seal(bool on) {
  is_sealed_ = on;
  send_held();
}

void Outbox::end() {
  is_gathering_ = false;
  for (auto held = held_.rbegin(); held != held_.rend() && held->inputs == kNotKnown; ++held) held->inputs = inputs_;
  send_held();
}

void Outbox::send_held() {
  if (is_sealed_ || is_gathering_) return;
  for (; !held_.empty() && is_held(held_.front().inputs); held_.pop_front()) link_.send(held_.front().to, held_.front().frame);
}

}  // namespace mv::replica
