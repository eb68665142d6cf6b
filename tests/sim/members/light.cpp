#include "light.hpp"

#include <algorithm>
#include <array>

namespace mv::sim {

ViewRef SharedViews::after(const ViewRef& before, const wire::View& header, std::span<const std::byte> payload) {
  constexpr size_t kKept = 64;
  const auto known = std::ranges::find_if(steps_, [&](const Step& step) {
    return step.before == before && step.epoch == header.epoch() && step.base == header.base();
  });
  if (known != steps_.end()) return known->after;
  const auto update = cluster::read_update(header, payload);
  if (!update.ok()) return nullptr;
  auto view = std::make_shared<cluster::View>();
  if (before != nullptr) *view = *before;
  if (!cluster::apply(update.value(), *view)) return nullptr;
  steps_.push_back({before, header.epoch(), header.base(), view});
  if (steps_.size() > kKept) steps_.pop_front();
  return view;
}

void LightMember::ask() {
  auto& fbb = builder_.fbb();
  base::Frame join = builder_.finish(wire::Body::Join, wire::CreateJoinDirect(fbb, self_.nodes, static_cast<int32_t>(self_.rank), static_cast<uint8_t>(self_.role),
                                                                              wire::Mode::Async, self_.address.c_str(), self_.host.c_str(), self_.pid, self_.replicas));
  wire::stamp(join, 1, 0);
  link_.send(master_, join);
}

void LightMember::ping(uint64_t answers) {
  link_.send(master_, builder_.finish(wire::Body::Ping, wire::CreatePing(builder_.fbb(), view_ != nullptr ? view_->epoch : 0, 0, answers)));
}

void LightMember::beat() {
  if (master_ == base::kNobody) return;
  view_ != nullptr ? ping() : ask();
}

void LightMember::on_connected(base::Peer peer, const std::string& address) {
  if (address != self_.master) return;
  master_ = peer;
  beat();
}

void LightMember::on_dial_failed(const std::string& address, const base::Status&) {
  timeline_.after(std::chrono::milliseconds(50), [this, address] { link_.dial(address); });
}

base::SinkRef LightMember::on_header(base::Peer, const wire::Message&, size_t bytes) {
  const std::shared_ptr<std::byte[]> memory(new std::byte[bytes]);
  return base::Sink::into({memory.get(), bytes}, memory);
}

void LightMember::on_message(base::Peer from, const wire::Message& message, std::span<const std::byte> payload) {
  if (from != master_) return;
  if (const auto* asked = message.body_as_Ping(); asked != nullptr && asked->asks() != 0) return ping(asked->asks());
  const auto* header = message.body_as_View();
  const bool is_answer = message.seq() != 0;
  if (header == nullptr || is_answer != (view_ == nullptr) || (view_ != nullptr && header->epoch() <= view_->epoch)) return;
  if (view_ != nullptr && header->base() > view_->epoch) {
    ++gaps;
    return ping();
  }
  view_ = views_.after(view_, *header, payload);
  if (view_ == nullptr) return timeline_.violated(self_.address + " got a view that is not valid");
  if (is_answer) ping();
}

}  // namespace mv::sim
