#include "engine/replica/outbox.hpp"

namespace mv::replica {

void Outbox::send(base::Peer to, const base::Frame& frame) {
  if (!is_open_) return;
  if (inputs_ == acknowledged_) return link_.send(to, frame);
  held_.push_back({inputs_, to, frame});
}

void Outbox::input_acknowledged() {
  if (acknowledged_ < inputs_) ++acknowledged_;
  for (; !held_.empty() && held_.front().inputs <= acknowledged_; held_.pop_front()) link_.send(held_.front().to, held_.front().frame);
}

void Outbox::release() {
  acknowledged_ = inputs_;
  for (; !held_.empty(); held_.pop_front()) link_.send(held_.front().to, held_.front().frame);
}

}  // namespace mv::replica
