#pragma once
// A transport that wraps another one and injects faults into it, by seeded random numbers. The messages that arrive
// still satisfy the contract of LinkEvents.

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "transport/faulty/faults.hpp"
#include "transport/loop/handles.hpp"
#include "transport/transport.hpp"

namespace mv::transport {

class FaultyTransport final : public Transport {
 public:
  FaultyTransport(Loop& loop, std::unique_ptr<Transport> transport, const Faults& faults);

  void attach(base::LinkEvents& events) override { transport_->attach(events); }
  base::Result<std::string> listen(const std::string& address) override { return transport_->listen(address); }
  base::Result<std::string> adopt(int listening_fd) override { return transport_->adopt(listening_fd); }
  void dial(const std::string& address) override { transport_->dial(address); }
  void send(base::Peer to, const base::Frame& frame) override;
  void close(base::Peer peer) override;
  void flush() override { transport_->flush(); }
  void stop(std::function<void()> stopped) override;
  void cut(base::Peer peer) override { transport_->cut(peer); }

 private:
  void pass_on(base::Peer to, const base::Frame& frame);
  base::Nanos time_on_line(const base::Frame& frame);
  void send_due();
  bool happens(double probability);
  uint64_t roll();

  Loop& loop_;
  const std::unique_ptr<Transport> transport_;
  const Faults faults_;
  uint64_t dice_;
  base::Nanos line_free_{0};  ///< when the line will have sent all its messages
  std::multimap<base::Nanos, std::pair<base::Peer, base::Frame>> delayed_;  // by due time
  Timer timer_;
};

}  // namespace mv::transport
