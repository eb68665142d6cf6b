#pragma once
// A member without engines, so that a cluster of many thousands fits into memory: it joins, pings, and keeps its view by the functions that
// members use. Members with equal views share them.

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "engine/cluster/self.hpp"
#include "engine/cluster/view_log.hpp"
#include "network.hpp"

namespace mv::sim {

using ViewRef = std::shared_ptr<const cluster::View>;

/// Makes each view once, however many members get it.
class SharedViews {
 public:
  /// The view after this message of the master; null: the message is not valid, or needs a newer view than `before`.
  ViewRef after(const ViewRef& before, const wire::View& header, std::span<const std::byte> payload);

 private:
  struct Step {
    ViewRef before;
    uint64_t epoch, base;
    ViewRef after;
  };
  std::deque<Step> steps_;  ///< the newest ones
};

class LightMember final : public base::LinkEvents {
 public:
  LightMember(Timeline& timeline, Network& network, SharedViews& views, cluster::Self self)
      : timeline_(timeline), self_(std::move(self)), link_(network, self_.peer), views_(views) {}

  void start() { link_.dial(self_.master); }
  /// Sends a ping, or the request to join again.
  void beat();
  const ViewRef& view() const { return view_; }
  const cluster::Self& self() const { return self_; }
  /// Updates without their base.
  size_t gaps = 0;

  void on_connected(base::Peer peer, const std::string& address) override;
  void on_dial_failed(const std::string& address, const base::Status& why) override;
  void on_lost(base::Peer, const base::Status&) override {}
  void on_message(base::Peer from, const wire::Message& message, std::span<const std::byte> payload) override;
  base::SinkRef on_header(base::Peer from, const wire::Message& message, size_t bytes) override;
  void on_payload(base::Peer from, const wire::Message& message, base::Sink& sink) override { on_message(from, message, sink.memory()); }

 private:
  void ask();
  void ping(uint64_t answers = 0);

  Timeline& timeline_;
  const cluster::Self self_;
  SimLink link_;
  SharedViews& views_;
  wire::FrameBuilder builder_;
  base::Peer master_ = base::kNobody;
  ViewRef view_;
};

}  // namespace mv::sim
